// SPDX-License-Identifier: BSD-3-Clause
// Training on a device that is none: the same network as on the host, nobody waits, and rows come
// later but in order.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <string>

#include <doctest/doctest.h>
#include <torch/cuda.h>

#include "mpi/device_ranks.h"
#include "mpi/short_training.h"
#include "train/iteration.h"
#include "train/pipeline.h"
#include "train/rank_state.h"

using namespace gradsync;
using gradsync::test::DeviceRanks;
using gradsync::test::resident;
using gradsync::test::short_options;
using gradsync::test::StandInGraph;
using gradsync::test::train_shortly;
using gradsync::test::Trained;

namespace {

constexpr std::int64_t kIterations = 6;
/// What short_options() cuts LeNet into.
constexpr std::size_t kBuckets = 4;

}  // namespace

TEST_CASE("device: every mode trains the very network that it trains from the host's memory") {
  const test::SmallSet set;
  for (const Mode& entry : kModes)
    for (const bool nccl : {true, false}) {
      if (nccl && entry.name == "c10d") continue;  // LibTorch's own process group needs a GPU
      const std::string mode(entry.name);
      CAPTURE(mode);
      CAPTURE(nccl);
      const TrainOptions options = short_options(mode);
      test::Ranks host;
      DeviceRanks device(nccl);
      // Sums over ranks of the same order: MPI's, but for those that are started on the host, whose
      // ring is ours; over MPI the device waits for means as the host does.
      const bool rings = entry.overlaps || entry.sleeps;
      const bool same_sums = !entry.sharded && (!nccl || !rings);
      const Trained there = train_shortly(host.exchange, *set.data, options, kIterations);
      const Trained here = train_shortly(device.exchange, *set.data, options, kIterations);
      if (same_sums || device.size <= 2) CHECK(here.hash == there.hash);
      if (entry.name == "ddp" || entry.name == "allreduce") CHECK(device.api.misaligned == 0);
      REQUIRE(here.iterations.size() == static_cast<std::size_t>(kIterations));
      for (std::size_t i = 0; i < here.iterations.size(); ++i) {
        CHECK(here.iterations[i].row.iteration == static_cast<std::int64_t>(i));
        // On the host the order of the buckets is a collective of iteration 0.
        if (i > 0)
          CHECK(here.iterations[i].row.buckets.size() == there.iterations[i].row.buckets.size());
        CHECK(here.iterations[i].measured.loss ==
              doctest::Approx(there.iterations[i].measured.loss).epsilon(1e-5));
      }
    }
}

TEST_CASE("device: drawn batches train the network that they train from the host's memory") {
  TrainOptions options = short_options("ddp");
  options.model = "synthetic:parameters=5k,compute=1ms,tensors=9";
  options.first_bucket_bytes = 512;
  options.bucket_cap_bytes = 4096;
  for (const char* mode : {"none", "gather-scatter", "data-parallel", "ddp", "fsdp"}) {
    CAPTURE(mode);
    options.sync = mode;
    test::Ranks host;
    DeviceRanks device(/*nccl=*/true, VerifyLevel::kOff);
    const DataSource data = RunData(options).draw(torch::kCPU);
    const Trained there = train_shortly(host.exchange, data, options, kIterations);
    const Trained here = train_shortly(device.exchange, data, options, kIterations);
    CHECK(torch::allclose(here.parameters, there.parameters, 1e-5, 1e-7));
    CHECK(device.device.host_waits() == 0);
  }
}

TEST_CASE(
    "device: a step that cannot be captured is launched, and nothing is lost by the attempt") {
  if (torch::cuda::is_available()) {
    MESSAGE("SKIP: device: the step on a stand-in: there is a GPU, whose own tests cover it");
    return;
  }
  const test::SmallSet set;
  for (const char* mode : {"none", "allreduce", "ddp"}) {
    CAPTURE(mode);
    const TrainOptions options = short_options(mode);
    const DataSource data(
        *set.data, std::make_shared<ResidentData>(*set.data, torch::kCPU, ImageType::kFloat32));
    DeviceRanks ranks(/*nccl=*/true);
    const Trained without = train_shortly(ranks.exchange, data, options, kIterations);
    StepGraph graph;
    const Trained with =
        train_shortly(ranks.exchange, data, options, kIterations, torch::kCPU, {}, &graph);
    CHECK_FALSE(graph.captured());
    CHECK_FALSE(graph.why_not().empty());
    CHECK(with.hash == without.hash);
    for (const FinishedIteration& step : with.iterations)
      CHECK(step.measured.buckets.size() == step.row.buckets.size());
  }
}

TEST_CASE("device: with --clip-norm the network is the host's, and nobody waits for the norm") {
  const test::SmallSet set;
  for (const char* mode : {"allreduce", "zero1", "fsdp"}) {
    CAPTURE(mode);
    TrainOptions options = short_options(mode);
    options.clip_norm = 0.05;  // every step is over it
    test::Ranks host;
    DeviceRanks device(/*nccl=*/true, VerifyLevel::kOff);
    const Trained there = train_shortly(host.exchange, *set.data, options, kIterations);
    const Trained here = train_shortly(device.exchange, *set.data, options, kIterations);
    CHECK(torch::allclose(here.parameters, there.parameters, 1e-6, 1e-8));
    CHECK(device.device.host_waits() == 0);
    options.clip_norm = 0;
    const Trained loose = train_shortly(device.exchange, *set.data, options, kIterations);
    CHECK_FALSE(torch::allclose(here.parameters, loose.parameters, 1e-3, 1e-4));
  }
}

TEST_CASE("device: in the steady loop over NCCL the host waits for nothing and makes no event") {
  const test::SmallSet set;
  for (const Mode& entry : kModes) {
    if (entry.name == "c10d") continue;  // LibTorch's own process group needs a GPU
    const std::string mode(entry.name);
    CAPTURE(mode);
    const TrainOptions options = short_options(mode);
    DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
    std::size_t events = 0;
    train_shortly(ranks.exchange, *set.data, options, kIterations, torch::kCPU,
                  [&](GradientGuard&, std::int64_t iteration) {
                    if (iteration == kIterations - 2) events = ranks.device.events_made();
                  });
    CHECK(ranks.device.host_waits() == 0);
    CHECK(ranks.device.events_made() == events);
  }
}

TEST_CASE("device: each iteration's times come from its own events") {
  const test::SmallSet set;
  const TrainOptions options = short_options("ddp");
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  const Trained trained =
      train_shortly(ranks.exchange, *set.data, options, kIterations, torch::kCPU,
                    [&](GradientGuard&, std::int64_t iteration) {
                      // Between two iterations: no part of either.
                      ranks.device.work(ranks.lane.compute, 0.01 * static_cast<double>(iteration));
                    });
  double last_begin_s = -1;
  for (const FinishedIteration& step : trained.iterations) {
    const RankIteration& measured = step.measured;
    REQUIRE(measured.buckets.size() == kBuckets);
    CHECK(measured.begin_s > last_begin_s);
    last_begin_s = measured.begin_s;
    for (const BucketTimes& bucket : measured.buckets) {
      CHECK(bucket.ready_s <= bucket.start_s);
      CHECK(bucket.end_s - bucket.start_s == doctest::Approx(ranks.call_s));
    }
    // The fake's compute takes no time, so no communication is hidden; its ranks begin at moments
    // of the host's clock, and one waits for the other.
    CHECK(measured[Phase::kHidden] == 0);
    CHECK(measured[Phase::kExposed] + measured[Phase::kWait] ==
          doctest::Approx(kBuckets * ranks.call_s));
    CHECK(measured[Phase::kIteration] == doctest::Approx(kBuckets * ranks.call_s));
  }
  const auto& first = trained.iterations[1].measured;
  const auto& second = trained.iterations[2].measured;
  CHECK(second.begin_s - first.begin_s == doctest::Approx(0.02 + kBuckets * ranks.call_s));
}

TEST_CASE("device: timers that drift apart make no rank wait") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  if (ranks.rank == ranks.size - 1) ranks.device.set_drift(20e-6);
  const Trained trained =
      train_shortly(ranks.exchange, *set.data, short_options("ddp"), kIterations, torch::kCPU,
                    [&](GradientGuard&, std::int64_t) { ranks.device.pass(10); });
  for (const FinishedIteration& step : trained.iterations) {
    const double calls_s = kBuckets * ranks.call_s;
    CHECK(step.measured[Phase::kWait] <= 0.01 * calls_s);
    CHECK(step.measured[Phase::kExposed] == doctest::Approx(calls_s).epsilon(0.01));
  }
}

TEST_CASE("device: a rank waits for as long as a call takes it above the shortest of all ranks") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  // The rank that waits is the one whose timer is ahead: by its own, nobody came after it.
  const bool waits = ranks.size > 1 && ranks.rank == ranks.size - 1;
  ranks.api.waits_s = waits ? 2 * test::kCall_s : 0;
  ranks.device.set_drift(waits ? 20e-6 : 0);
  const Trained trained =
      train_shortly(ranks.exchange, *set.data, short_options("ddp"), kIterations, torch::kCPU,
                    [&](GradientGuard&, std::int64_t) { ranks.device.pass(10); });
  for (const FinishedIteration& step : trained.iterations) {
    CHECK(step.measured[Phase::kWait] == doctest::Approx(kBuckets * ranks.api.waits_s));
    CHECK(step.measured[Phase::kExposed] == doctest::Approx(kBuckets * ranks.call_s).epsilon(0.01));
  }
}

TEST_CASE("device: the host's clock and the device's timer are read again every few seconds") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  // Here it is the device's seconds alone that pass.
  const Trained trained =
      train_shortly(ranks.exchange, *set.data, short_options("gather-scatter"), 12, torch::kCPU,
                    [&](GradientGuard&, std::int64_t) { ranks.device.pass(10); });
  CHECK(trained.iterations.back().measured.begin_s < gradsync::now_s() + 40);
}

TEST_CASE("device: a gradient that is not finite is found with its name, in its iteration") {
  const test::SmallSet set;
  const int last = test::session().size() - 1;
  for (const char* mode :
       {"none", "allreduce", "ddp", "top-k", "powersgd", "local-sgd", "zero1", "fsdp"}) {
    CAPTURE(mode);
    const TrainOptions options = short_options(mode);
    DeviceRanks ranks(/*nccl=*/true);
    const Trained trained = train_shortly(ranks.exchange, *set.data, options, kIterations,
                                          torch::kCPU, [&](GradientGuard& guard, std::int64_t i) {
                                            if (i == 3 && ranks.rank == last) guard.poison_next();
                                          });
    const Replica replica = make_replica(options.model, 1, Layout::kNhwc);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(trained.iterations[i].bad_tensor == -1);
    if (ranks.rank != last) {
      // Its own gradients are finite: what it is sent makes no other rank the one at fault.
      if (!mode_named(mode).changes.empty()) CHECK(trained.iterations[3].bad_tensor == -1);
      continue;
    }
    const std::int64_t bad = trained.iterations[3].bad_tensor;
    REQUIRE(bad >= 0);
    if (std::string(mode) == "fsdp") continue;  // its buffers have held gradients of several units
    REQUIRE(bad < static_cast<std::int64_t>(replica.names.size()));
    CHECK(replica.names[static_cast<std::size_t>(bad)].rfind("fc3.", 0) == 0);
  }
}

TEST_CASE("device: profilers see each phase and each bucket of an iteration, by name") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  TrainOptions options = short_options("ddp");
  options.accumulate = 2;
  const Trained trained = train_shortly(ranks.exchange, *set.data, options, kIterations);
  CHECK(ranks.device.open_ranges() == 0);
  std::int64_t iteration = -1;
  std::map<std::string, int> seen;
  for (const auto& range : ranks.device.ranges()) {
    if (range.name == "iteration") {
      CHECK(range.value == ++iteration);
      CHECK(range.within.empty());
      seen.clear();
      continue;
    }
    const bool bucket = range.name == "allreduce";
    CHECK(range.within == (bucket ? "backward" : "iteration"));
    ++seen[range.name];
    if (range.name != "optimizer") continue;
    // A pass: the network and its loss are two ranges of forward.
    CHECK(seen == std::map<std::string, int>{{"data", 2},
                                             {"forward", 4},
                                             {"backward", 2},
                                             {"allreduce", static_cast<int>(kBuckets)},
                                             {"optimizer", 1}});
  }
  CHECK(iteration == kIterations - 1);
  const std::int64_t bytes = trained.iterations.at(1).row.buckets.at(0).bytes;
  const auto& all = ranks.device.ranges();
  CHECK(std::any_of(all.begin(), all.end(), [&](const auto& range) {
    return range.name == "allreduce" && range.value == bytes;
  }));
}

TEST_CASE("device: a replayed step counts what it moves, and a failed capture counts nothing") {
  const test::SmallSet set;
  for (const char* mode : {"allreduce", "ddp"})
    for (const bool fails : {false, true}) {
      CAPTURE(mode);
      CAPTURE(fails);
      const TrainOptions options = short_options(mode);
      constexpr auto kAt = static_cast<std::size_t>(Traffic::kGradients);
      const auto moved = [&](StepGraph* graph) {
        DeviceRanks ranks(/*nccl=*/true);
        const RankTraffic before = test::session().ledger().total();
        train_shortly(ranks.exchange, resident(*set.data), options, kIterations, torch::kCPU, {},
                      graph);
        const RankTraffic after = test::session().ledger().total();
        return std::pair(after.calls[kAt] - before.calls[kAt],
                         after.sent_bytes[kAt] - before.sent_bytes[kAt]);
      };
      StandInGraph graph;
      graph.fails = fails;
      CHECK(moved(&graph) == moved(nullptr));
      CHECK(graph.replays == (fails ? 0 : kIterations - kStepsBeforeCapture));
      CHECK(graph.captured() == !fails);
    }
}

TEST_CASE("device: the step that is captured is the step that is launched") {
  const test::SmallSet set;
  for (const char* mode : {"none", "gather-scatter", "allreduce", "ddp"}) {
    CAPTURE(mode);
    TrainOptions options = short_options(mode);
    options.clip_norm = 0.05;
    DeviceRanks launched(/*nccl=*/true), captured(/*nccl=*/true);
    StandInGraph graph;
    constexpr std::int64_t kFirstReplay = kStepsBeforeCapture + 1;
    const Trained there =
        train_shortly(launched.exchange, resident(*set.data), options, kFirstReplay);
    const Trained here = train_shortly(captured.exchange, resident(*set.data), options,
                                       kFirstReplay, torch::kCPU, {}, &graph);
    CHECK(graph.replays == 1);
    CHECK(here.hash == there.hash);
  }
}

TEST_CASE("device: a graph is of the largest batch, whichever comes first") {
  StepGraph graph;
  graph.note(336, 1, {});
  for (std::int64_t step = 0; step < kStepsBeforeCapture; ++step) {
    CHECK_FALSE(graph.serves(512, 1));
    graph.note(512, 1, {});
  }
  graph.note(336, 1, {});
  CHECK(graph.serves(512, 1));
  CHECK_FALSE(graph.serves(336, 1));
}

TEST_CASE("device: where one rank cannot capture, rank 0 knows which and why") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true);
  StandInGraph graph;
  graph.fails = ranks.rank == ranks.size - 1;
  train_shortly(ranks.exchange, resident(*set.data), short_options("ddp"), kIterations, torch::kCPU,
                {}, &graph);
  CHECK_FALSE(graph.captured());
  const std::string why = "operation not permitted";
  if (ranks.rank == 0)
    CHECK(graph.why_not() ==
          (graph.fails ? why : "rank " + std::to_string(ranks.size - 1) + ": " + why));
}

TEST_CASE("device: a replayed step has a training time") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true);
  StandInGraph graph;
  const Trained trained = train_shortly(ranks.exchange, resident(*set.data), short_options("ddp"),
                                        kIterations, torch::kCPU, {}, &graph);
  for (const FinishedIteration& step : trained.iterations) {
    const RankIteration& measured = step.measured;
    const bool replayed = std::isnan(measured[Phase::kData]);
    CHECK(training_s(measured) ==
          measured[Phase::kIteration] - (replayed ? 0 : measured[Phase::kData]));
  }
  CHECK(std::isnan(trained.iterations.back().measured[Phase::kData]));
}

TEST_CASE("device: batches of loader threads are sent from page-locked memory, without a wait") {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true);
  const auto batches = [&](DeviceLane* lane) {
    auto source = make_batch_source({*set.data, nullptr, torch::kCPU, lane}, ImageType::kFloat32);
    LoaderOptions how;
    how.steps = 9;
    how.layout = Layout::kNhwc;
    source->begin([](std::int64_t step) { return std::vector<std::int64_t>{step, 7 * step}; }, how);
    return source;
  };
  const auto loaded = batches(nullptr), sent = batches(&ranks.lane);
  std::vector<FeedBatch> here, there;
  const auto take_three = [&] {
    for (int i = 0; i < 3; ++i) {
      ranks.device.work(ranks.lane.compute, 1);
      here.push_back(loaded->next());
      there.push_back(sent->next());
    }
    return ranks.device.blocks();
  };
  constexpr std::size_t kImagesAndLabels = 2;
  CHECK(take_three() == 3 * kImagesAndLabels);  // none of the copies has happened
  ranks.device.pass(4);
  CHECK(take_three() == 3 * kImagesAndLabels);
  ranks.ring.release_below(ranks.ring.next_ticket());
  CHECK(take_three() == 3 * kImagesAndLabels);
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(torch::equal(here[i].images, there[i].images));
    CHECK(there[i].images.strides() == here[i].images.strides());
    CHECK(torch::equal(here[i].labels, there[i].labels));
  }
  CHECK(ranks.device.host_waits() == 0);
}

TEST_CASE("device: where a library waits for values, they have been looked for until they came") {
  const test::SmallSet set;
  const TrainOptions options = short_options("allreduce");
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  const ComputeSettings compute;
  RankTraining training(ranks.exchange, make_replica(options.model, options.seed, Layout::kNhwc),
                        *set.data, compute, options);
  const auto looked = [&](const std::function<void()>& read) {
    ranks.device.work(ranks.lane.compute, 2e-3);
    const double end_s = ranks.device.end_of(ranks.lane.compute);
    read();
    return ranks.device.now_s() >= end_s && ranks.device.host_waits() == 0;
  };
  CHECK(looked([&] { evaluate(training, *set.data, EvaluateHow::kEachRank); }));
  CHECK(looked([&] { compare_replicas(ranks.exchange, training.replica); }));
}

TEST_CASE("device: the moment that relates two clocks is looked for without a pause") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  const Replica replica = make_replica("lenet", 1, Layout::kNhwc);
  Pipeline pipeline(ranks.exchange, replica, /*clock_offset_s=*/0);
  ranks.device.work(ranks.lane.compute, 1e-2);  // a thousand looks
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  pipeline.anchor();
  getrusage(RUSAGE_THREAD, &after);
  CHECK(after.ru_nvcsw - before.ru_nvcsw < 500);
}

namespace {

/// Ends the job: rank 1 stops, and no collective from iteration 5 on ends. The others wait for the
/// numbers of that iteration, where rank 1 has taken part in all that goes by MPI before; or in a
/// launch, where the queue of their device is full before that.
void train_behind_a_stopped_rank(const char* mode, bool has_room) {
  const test::SmallSet set;
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  if (!has_room) ranks.device.set_queue(6);
  const std::int64_t stops_at = has_room ? 5 + static_cast<std::int64_t>(Pipeline::kInFlight) : 5;
  const Session& session = test::session();
  session.before_abort([&] { ranks.transport->abandon(); });
  session.watchdog().set_timeout(3);
  train_shortly(ranks.exchange, *set.data, short_options(mode), 40, torch::kCPU,
                [&](GradientGuard&, std::int64_t iteration) {
                  if (iteration == 5) ranks.api.stuck = true;
                  if (iteration == stops_at && session.rank() == 1) std::raise(SIGSTOP);
                });
}

}  // namespace

// Run by tests/e2e/hangs.py.
TEST_CASE("hang on a device: ddp with room for launches" * doctest::skip()) {
  train_behind_a_stopped_rank("ddp", /*has_room=*/true);
}
TEST_CASE("hang on a device: zero1 without room for launches" * doctest::skip()) {
  train_behind_a_stopped_rank("zero1", /*has_room=*/false);
}
