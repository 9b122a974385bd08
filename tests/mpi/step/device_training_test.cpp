// Training on a device that is none: the same network as on the host, nobody waits, and rows come
// later but in order.
#include <algorithm>
#include <map>
#include <string>

#include <doctest/doctest.h>
#include <torch/cuda.h>

#include "mpi/device_ranks.h"
#include "mpi/short_training.h"

using namespace gradsync;
using gradsync::test::DeviceRanks;
using gradsync::test::short_options;
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
      // Sums over ranks of the same order: MPI's, but for ddp and c10d on the host, whose ring is
      // ours.
      const bool same_sums = nccl ? entry.name != "ddp" : true;
      const Trained there = train_shortly(host.exchange, *set.data, options, kIterations);
      const Trained here = train_shortly(device.exchange, *set.data, options, kIterations);
      if (same_sums || device.size <= 2) CHECK(here.hash == there.hash);
      REQUIRE(here.steps.size() == static_cast<std::size_t>(kIterations));
      for (std::size_t i = 0; i < here.steps.size(); ++i) {
        CHECK(here.iterations[i] == static_cast<std::int64_t>(i));
        // On the host the order of the buckets is a collective of iteration 0.
        if (i > 0) CHECK(here.steps[i].buckets.size() == there.steps[i].buckets.size());
        CHECK(here.steps[i].measured.loss ==
              doctest::Approx(there.steps[i].measured.loss).epsilon(1e-5));
      }
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
    for (const StepResult& step : with.steps)
      CHECK(step.measured.buckets.size() == step.buckets.size());
  }
}

TEST_CASE("device: with --clip-norm the network is the host's, and nobody waits for the norm") {
  const test::SmallSet set;
  TrainOptions options = short_options("allreduce");
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

TEST_CASE("device: in the steady loop over NCCL the host waits for nothing and makes no event") {
  const test::SmallSet set;
  for (const char* mode : {"allreduce", "gather-scatter", "ddp", "data-parallel"}) {
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
  for (const StepResult& step : trained.steps) {
    const RankIteration& measured = step.measured;
    REQUIRE(measured.buckets.size() == kBuckets);
    CHECK(measured.begin_s > last_begin_s);
    last_begin_s = measured.begin_s;
    for (const BucketTimes& bucket : measured.buckets) {
      CHECK(bucket.ready_s <= bucket.start_s);
      CHECK(bucket.end_s - bucket.start_s == doctest::Approx(1e-3));
    }
    // The fake's compute takes no time, so no communication is hidden; its ranks begin at moments
    // of the host's clock, and one waits for the other.
    CHECK(measured[Phase::kHidden] == 0);
    CHECK(measured[Phase::kExposed] + measured[Phase::kWait] == doctest::Approx(kBuckets * 1e-3));
    CHECK(measured[Phase::kIteration] == doctest::Approx(kBuckets * 1e-3));
  }
  const auto& first = trained.steps[1].measured;
  const auto& second = trained.steps[2].measured;
  CHECK(second.begin_s - first.begin_s == doctest::Approx(0.02 + kBuckets * 1e-3));
}

TEST_CASE("device: a gradient that is not finite is found with its name, in its iteration") {
  const test::SmallSet set;
  const int last = test::session().size() - 1;
  for (const char* mode : {"none", "allreduce", "ddp"}) {
    CAPTURE(mode);
    const TrainOptions options = short_options(mode);
    DeviceRanks ranks(/*nccl=*/true);
    const Trained trained = train_shortly(ranks.exchange, *set.data, options, kIterations,
                                          torch::kCPU, [&](GradientGuard& guard, std::int64_t i) {
                                            if (i == 3 && ranks.rank == last) guard.poison_next();
                                          });
    const Replica replica = make_replica(options.model, 1, Layout::kNhwc);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(trained.steps[i].bad_tensor == -1);
    if (ranks.rank != last) continue;
    const std::int64_t bad = trained.steps[3].bad_tensor;
    REQUIRE(bad >= 0);
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
  const std::int64_t bytes = trained.steps.at(1).buckets.at(0).bytes;
  const auto& all = ranks.device.ranges();
  CHECK(std::any_of(all.begin(), all.end(), [&](const auto& range) {
    return range.name == "allreduce" && range.value == bytes;
  }));
}
