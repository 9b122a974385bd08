// SPDX-License-Identifier: BSD-3-Clause
// Contenders in turn on a device that is none: times of their own events, graphs, stop and resume.
#include "train/experiment.h"

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "mpi/device_ranks.h"
#include "mpi/short_training.h"
#include "record/reader.h"
#include "serial/sample_run.h"

using namespace gradsync;
using gradsync::test::DeviceRanks;
using gradsync::test::short_options;
using gradsync::test::StandInGraph;

namespace {

constexpr std::int64_t kIterationsEach = 12, kBlock = 2, kWarmup = 2;

/// A contender with its file.
struct Contestant {
  TrainOptions options;
  RunInfo info;
  ResumePlan plan = {};
  std::unique_ptr<Exchange> exchange = {};
  std::unique_ptr<Recorder> recorder = {};
  std::optional<RunSetting> setting = {};
  std::vector<StandInGraph*> graphs = {};
};

/// A job of contenders on the stand-in: what main makes of `--compare`, with one file each.
class Job {
 public:
  Job(const test::SmallSet& set, const std::filesystem::path& folder,
      const std::vector<TrainOptions>& contenders, const StopRequest* stop = nullptr,
      std::int64_t last_joined = 0)
      : experiment_(std::make_unique<Experiment>(test::session(), stop)) {
    for (const TrainOptions& options : contenders)
      enter(set, folder, options, &options == &contenders.back() ? last_joined : 0);
  }
  ~Job() {
    experiment_.reset();  // before what its contenders exchange through
    while (!contestants_.empty())
      contestants_.pop_back();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Experiment& experiment() { return *experiment_; }
  DeviceRanks& ranks() { return ranks_; }
  const std::deque<Contestant>& contestants() const { return contestants_; }

  void run() {
    ParsedCommandLine given;
    given.quiet = true;
    ProgramOutput output(given, "test");
    experiment_->run([] {}, output);
    for (Contestant& one : contestants_)
      if (one.recorder) one.recorder->finish(RunStatus::kComplete);
  }

 private:
  void enter(const test::SmallSet& set, const std::filesystem::path& folder,
             const TrainOptions& options, std::int64_t joined) {
    Contestant& one = contestants_.emplace_back(Contestant{options, {}});
    one.options.output = folder / (options.sync + ".h5");
    one.options.block = kBlock;
    one.options.iterations = kIterationsEach;
    one.options.warmup = kWarmup;
    one.options.evaluate = EvaluateHow::kNone;
    one.info =
        testing::sample_info({options.sync, static_cast<std::size_t>(ranks_.size), 0, 1000, 4, 2});
    one.plan = plan_resume(test::session(), one.options, describe_run(one.info));
    one.exchange = std::make_unique<Exchange>(test::session(), *ranks_.transport, VerifyLevel::kOff,
                                              &ranks_.lane);
    if (ranks_.rank == 0 && one.plan.resumes)
      one.recorder = std::make_unique<Recorder>(
          one.options.output,
          ResumeRow{one.plan.from.iteration, one.plan.from.journal_bytes, "2026", "node"});
    else if (ranks_.rank == 0)
      one.recorder = std::make_unique<Recorder>(one.options.output, one.info);
    DataSource data = test::resident(*set.data);
    data.lane = &ranks_.lane;
    one.setting.emplace(RunSetting{.options = one.options,
                                   .data = data,
                                   .compute = compute_,
                                   .places = one.info.topology,
                                   .start_s = now_s(),
                                   .recorder = one.recorder.get(),
                                   .resume = &one.plan,
                                   .description = describe_run(one.info),
                                   .make_graph =
                                       [&one] {
                                         auto graph = std::make_unique<StandInGraph>();
                                         one.graphs.push_back(graph.get());
                                         return graph;
                                       },
                                   .quiet = true,
                                   .trial = true});
    experiment_->add({options.sync, *one.exchange, *one.setting, joined});
  }

  DeviceRanks ranks_{/*nccl=*/true, VerifyLevel::kOff};
  ComputeSettings compute_;
  std::deque<Contestant> contestants_;
  std::unique_ptr<Experiment> experiment_;
};

std::vector<TrainOptions> contenders(bool graph = false) {
  std::vector<TrainOptions> all = {short_options("ddp"), short_options("allreduce")};
  for (TrainOptions& one : all) {
    one.resume = "auto";
    one.graph = graph;
    if (!graph) continue;
    one.device = "cuda";
    one.transport = "nccl";
  }
  return all;
}

/// Every mode that the stand-in can run.
std::vector<TrainOptions> every_mode() {
  std::vector<TrainOptions> all;
  for (const Mode& mode : kModes) {
    if (mode.name == "c10d") continue;  // LibTorch's own process group needs a GPU
    all.push_back(short_options(std::string(mode.name)));
    all.back().resume = "auto";
  }
  return all;
}

/// On rank 0; the others have no file.
std::unique_ptr<RunReader> run_of(const std::filesystem::path& folder, const std::string& sync) {
  return open_run(folder / (sync + ".h5"));
}

std::string hash_of(const std::filesystem::path& folder, const std::string& sync) {
  return distinct_hashes(run_of(folder, sync)->replicas().front());
}

}  // namespace

TEST_CASE("orders of rounds are balanced in places and predecessors") {
  for (std::size_t count = 1; count <= 12; ++count) {
    const std::size_t rounds = count % 2 == 0 ? count : 2 * count;
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> places, behind;
    std::set<std::vector<std::size_t>> orders;
    for (std::size_t round = 0; round < 2 * rounds; ++round) {
      const auto order = order_of_round(1, static_cast<std::int64_t>(round), count);
      orders.insert(order);
      for (std::size_t place = 0; place < count; ++place) {
        ++places[{order[place], place}];
        if (place > 0) ++behind[{order[place - 1], order[place]}];
      }
    }
    CAPTURE(count);
    const std::size_t each = 2 * rounds / count;
    CHECK(places.size() == count * count);
    for (const auto& [what, times] : places)
      CHECK(times == each);
    CHECK(behind.size() == count * (count - 1));
    for (const auto& [what, times] : behind)
      CHECK(times == each);
    // The second design is another draw.
    if (count > 4) CHECK(orders.size() > rounds);
  }
}

TEST_CASE("experiment on a device: each contender has the times of its own events") {
  const test::SmallSet set;
  const test::SharedFolder folder;
  Job job(set, folder.path(), contenders());
  job.run();
  CHECK(job.ranks().device.host_waits() == 0);
  if (job.ranks().rank != 0) return;
  const double call_s = job.ranks().call_s;
  struct Expected {
    std::size_t which;
    const char* sync;
    int messages;
  };
  for (const auto [which, sync, messages] : {Expected{0, "ddp", 4}, {1, "allreduce", 1}}) {
    const BlockTime block = job.experiment().medians(which);
    CHECK(block.time_s == doctest::Approx(messages * call_s));
    CHECK(block.part_s(CostPart::kExposed) + block.part_s(CostPart::kWait) ==
          doctest::Approx(messages * call_s));
    const auto run = run_of(folder.path(), sync);
    REQUIRE(run->iterations() == static_cast<std::size_t>(kIterationsEach));
    const std::vector<std::int64_t> rounds = run->index().round;
    const Matrix begin = run->begin();
    for (std::size_t row = 0; row < run->iterations(); ++row) {
      CHECK(rounds[row] == static_cast<std::int64_t>(row) / kBlock);
      // On the host's clock, to which each block is anchored again.
      for (std::size_t rank = 0; rank < run->ranks(); ++rank)
        CHECK(begin.at(row, rank) >= (row == 0 ? 0 : begin.at(row - 1, rank)));
    }
  }
  if (call_s > 0) {
    const Estimate ratio = job.experiment().ratio(0, 1);
    CHECK(ratio.value == doctest::Approx(4));
    CHECK(ratio.count == static_cast<std::size_t>(kIterationsEach / kBlock - 1));
  }
}

TEST_CASE("experiment on a device: graphs are captured and replayed by each contender") {
  const test::SmallSet set;
  const test::SharedFolder folder;
  Job job(set, folder.path(), contenders(/*graph=*/true));
  job.run();
  for (const Contestant& one : job.contestants()) {
    CAPTURE(one.options.sync);
    REQUIRE(one.graphs.size() == 1);
  }
  if (job.ranks().rank != 0) return;
  for (const char* sync : {"ddp", "allreduce"}) {
    const auto run = run_of(folder.path(), sync);
    const Matrix iteration = run->time(Phase::kIteration), forward = run->time(Phase::kForward);
    for (std::size_t row = 0; row < run->iterations(); ++row) {
      CHECK(std::isfinite(iteration.at(row, 0)));
      CHECK(std::isnan(forward.at(row, 0)) ==
            (row >= static_cast<std::size_t>(kStepsBeforeCapture)));
    }
  }
  CHECK(std::isnan(job.experiment().medians(0).part_s(CostPart::kExposed)));
}

TEST_CASE("experiment on a device: killed between two rounds, it ends as if it had not been") {
  const test::SmallSet set;
  for (const bool graph : {false, true}) {
    CAPTURE(graph);
    const test::SharedFolder whole, parts;
    const std::vector<TrainOptions> modes = graph ? contenders(graph) : every_mode();
    Job(set, whole.path(), modes).run();
    std::vector<TrainOptions> with_checkpoints = modes;
    for (TrainOptions& one : with_checkpoints)
      one.checkpoint_every = kBlock;
    {
      Job job(set, parts.path(), with_checkpoints);
      for (int round = 0; round < 3; ++round)
        job.experiment().run_round();
    }
    Job(set, parts.path(), with_checkpoints).run();
    if (test::session().rank() != 0) continue;
    for (const TrainOptions& one : modes) {
      const std::string& sync = one.sync;
      CAPTURE(sync);
      // A replay that runs nothing trains nothing: there the numbers of iterations alone are equal.
      if (!graph) CHECK(hash_of(parts.path(), sync) == hash_of(whole.path(), sync));
      const auto run = run_of(parts.path(), sync);
      REQUIRE(run->iterations() == static_cast<std::size_t>(kIterationsEach));
      for (std::size_t row = 0; row < run->iterations(); ++row)
        CHECK(run->index().round[row] == static_cast<std::int64_t>(row) / kBlock);
    }
  }
}

TEST_CASE(
    "experiment on a device: rounds before a contender joins count, though the job began again") {
  const test::SmallSet set;
  const test::SharedFolder folder;
  constexpr std::int64_t kJoined = 2;
  Job(set, folder.path(), contenders(), nullptr, kJoined).run();
  if (test::session().rank() != 0) return;
  struct Expected {
    const char* sync;
    std::int64_t joined;
  };
  for (const Expected& one : {Expected{"ddp", 0}, {"allreduce", kJoined}}) {
    CAPTURE(one.sync);
    const auto run = run_of(folder.path(), one.sync);
    CHECK(run->iterations() == static_cast<std::size_t>(kIterationsEach - one.joined * kBlock));
    for (std::size_t row = 0; row < run->iterations(); ++row)
      CHECK(run->index().round[row] == one.joined + static_cast<std::int64_t>(row) / kBlock);
  }
}

namespace {

/// Where the two cases below meet.
std::filesystem::path folder_of_both() {
  const char* folder = std::getenv("TEST_FOLDER");
  REQUIRE(folder != nullptr);
  return folder;
}

}  // namespace

// Two jobs of tests/e2e/resume.py: a stop ends the job.
TEST_CASE("stop on a device: asked for by the last rank, after two rounds" * doctest::skip()) {
  const test::SmallSet set;
  const StopRequest stop;
  test::session().abort_on_error([&] {
    Job job(set, folder_of_both(), contenders(), &stop);
    job.experiment().run_round();
    job.experiment().run_round();
    if (job.ranks().rank == job.ranks().size - 1) std::raise(SIGUSR1);
    job.run();
  });
}

TEST_CASE("stop on a device: each contender resumes from its checkpoint" * doctest::skip()) {
  const test::SmallSet set;
  const test::SharedFolder whole;
  Job(set, whole.path(), contenders()).run();
  Job(set, folder_of_both(), contenders()).run();
  if (test::session().rank() != 0) return;
  for (const char* sync : {"ddp", "allreduce"})
    CHECK(hash_of(folder_of_both(), sync) == hash_of(whole.path(), sync));
}
