// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/run_group.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_run.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

void write_with(const RunFolder::File& path, const SampleShape& shape,
                const std::function<void(RunInfo&)>& change) {
  RunInfo info = sample_info(shape);
  change(info);
  auto&& recorder = recorder_of(path, info);
  record_sample(recorder, shape);
  recorder.finish(RunStatus::kComplete);
}

/// Two repeats, of which the second differs.
RunSet pair(const RunFolder& folder, const std::function<void(RunInfo&)>& change) {
  write_sample(folder / "a.h5", {});
  write_with(folder / "b.h5", {}, change);
  return loaded(folder);
}

RunSpread spread_of(const std::vector<StudyRun>& study) {
  const RunFolder folder;
  for (std::size_t i = 0; i < study.size(); ++i)
    write_study(folder / (std::to_string(i) + ".h5"), study[i]);
  const RunSet set = loaded(folder);
  return run_spreads(group_runs(set)).at("lenet");
}

}  // namespace

TEST_CASE("run_group: repeats stand together, other cells apart") {
  const RunFolder folder;
  write_sample(folder / "a.h5", {});
  write_sample(folder / "b.h5", {});
  write_sample(folder / "c.h5", {"allreduce"});
  write_sample(folder / "d.h5", {"ddp", 4});
  write_sample(folder / "e.h5", {"ddp", 2, 12, 5, 64});
  write_with(folder / "f.h5", {}, [](RunInfo& info) {
    info.config.push_back({"bucket-cap", "1048576", "command line"});
  });
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  std::string text;
  for (const RunGroup& group : groups) {
    for (const Run* run : group.repeats)
      text += run->name;
    text += " ";
  }
  CHECK(text == "c ab f e d ");
  CHECK(contains(sources_of(groups[1]), "a.h5, "));
  CHECK(contains(sources_of(groups[1]), "b.h5"));
}

TEST_CASE("run_group: a run from before an option is a repeat of one that has its default") {
  const auto with = [](const char* init, const char* sync_only) {
    return [=](RunInfo& info) {
      info.config.push_back({"init", init, "default"});
      info.config.push_back({"sync-only", sync_only, "default"});
    };
  };
  const RunFolder same;
  CHECK(group_runs(pair(same, with("equal", "all"))).size() == 1);
  const RunFolder other_init;
  CHECK(group_runs(pair(other_init, with("per-rank", "all"))).size() == 2);
  const RunFolder other_exchange;
  CHECK(group_runs(pair(other_exchange, with("equal", "gradients"))).size() == 2);
}

TEST_CASE("run_group: the slowest rank of each steady iteration, of all repeats") {
  const RunFolder folder;
  write_sample(folder / "a.h5", {});
  write_sample(folder / "b.h5", {"ddp", 2, 5, 5, 32, 0});
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 1);
  // a: iterations 2 … 11 of rank 1 (11 + 0.1·i ms); b flags none: 1 … 4.
  const auto values = steady_values(groups[0], Phase::kIteration);
  REQUIRE(values.size() == 14);
  CHECK(values.front() == Approx(0.0112));
  CHECK(values[9] == Approx(0.0121));
  CHECK(values[10] == Approx(0.0111));
  CHECK(values.back() == Approx(0.0114));
  // Only rank 1 measured its wait.
  CHECK(steady_values(groups[0], Phase::kWait).front() == Approx(0.00025));
}

TEST_CASE("run_group: iterations of local-sgd count in such numbers that one exchanges") {
  const RunFolder folder;
  RunInfo info = sample_info({"local-sgd", 2});
  info.config.push_back({"local-steps", "4", "command line"});
  auto&& recorder = recorder_of(folder / "a.h5", info);
  for (std::size_t i = 0; i < 12; ++i) {
    IterationRow row = sample_row({"local-sgd", 2}, i);
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] = i % 4 == 3 ? 0.050 : 0.010;
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  // Ten without warm-up: two whole numbers of four, each with an exchange.
  const auto values = steady_values(groups[0], Phase::kIteration);
  REQUIRE(values.size() == 2);
  CHECK(values[0] == Approx(0.020));
  CHECK(values[1] == Approx(0.020));
  // Means are over whole numbers as well: eight of the ten.
  CHECK(set.runs[0].steady.kept() == 8);
  CHECK(rank_means(*set.runs[0].reader, set.runs[0].steady, phase_blocks(Phase::kIteration))[0] ==
        Approx(0.020));
  const Table table = make_modes_table(set, {});
  CHECK(shown(table, 0, "iteration_median_ms") == "20.00");
  // What scatters is the single iteration.
  CHECK(shown(table, 0, "steady_iterations") == "8");
  CHECK(shown(table, 0, "iteration_p99_ms") == "50.00");
}

TEST_CASE("run_group: less than a period of local-sgd has no means, since nothing was exchanged") {
  const RunFolder folder;
  StudyRun run{"local-sgd", 2, 32, 0.010, 0, 0, 5};
  run.change_info = [](RunInfo& info) {
    info.config.push_back({"local-steps", "4", "command line"});
  };
  write_study(folder / "short.h5", run);
  const Table table = make_summary_table(loaded(folder), {});
  CHECK(shown(table, 0, "exposed_percent") == "n/a");
  CHECK(shown(table, 0, "iteration_median_ms") == "n/a");
}

namespace {

/// What a run has on other devices, and on other hosts.
StudyRun on(const std::string& device, StudyRun run, std::size_t ranks_per_host = 8) {
  run.change_info = [=](RunInfo& info) {
    for (RankPlace& place : info.topology) {
      place.device = device;
      place.affinity = "0-15";
      place.host = fmt::format("node{}", static_cast<std::size_t>(place.rank) / ranks_per_host);
    }
  };
  return run;
}

}  // namespace

TEST_CASE("run_group: times of other devices or of other places of the ranks are not compared") {
  for (const auto& other :
       {on("NVIDIA H100", {"ddp", 4, 32, 0.010}), on("NVIDIA A100", {"ddp", 4, 32, 0.010}, 1)}) {
    const RunFolder folder;
    write_study(folder / "a.h5", on("NVIDIA A100", {"allreduce", 4, 32, 0.020}));
    write_study(folder / "b.h5", other);
    const RunSet set = loaded(folder);
    const Table table = make_modes_paired_table(set, {}), summary = make_summary_table(set, {});
    CHECK(shown(table, 1, "verdict") == "reference");
    CHECK(shown(summary, 0, "to_fastest") == "1.00");
    CHECK(shown(summary, 1, "to_fastest") == "1.00");
  }
  const RunFolder folder;
  write_study(folder / "one.h5", on("NVIDIA A100", {"none", 1, 32, 0.010}));
  write_study(folder / "same.h5", on("NVIDIA A100", {"ddp", 2, 32, 0.020}));
  write_study(folder / "other.h5", on("NVIDIA H100", {"ddp", 4, 32, 0.010}));
  write_study(folder / "more.h5", on("NVIDIA H100", {"allreduce", 1, 32, 0.005}));
  const RunSet set = loaded(folder);
  const Table summary = make_summary_table(set, {});
  CHECK(shown(summary, row_with(summary, {{"ranks", "2"}}), "efficiency_percent") == "50.0");
  CHECK(shown(summary, row_with(summary, {{"ranks", "4"}}), "efficiency_percent") == "n/a");
  const Table speedup = make_speedup_table(set, {});
  CHECK(contains(shown(speedup, row_with(speedup, {{"run", "other"}}), "remark"),
                 "NVIDIA A100 in the base, NVIDIA H100 here"));
  CHECK_FALSE(run_spreads(group_runs(set)).at("lenet").known());
}

TEST_CASE("run_group: a base is one on the same devices where there is one") {
  const RunFolder folder;
  write_study(folder / "2.h5", on("NVIDIA A100", {"ddp", 2, 32, 0.010}));
  write_study(folder / "4.h5", on("NVIDIA H100", {"ddp", 4, 32, 0.004}));
  write_study(folder / "8.h5", on("NVIDIA H100", {"ddp", 8, 32, 0.005}));
  const RunSet set = loaded(folder);
  const Table summary = make_summary_table(set, {}), speedup = make_speedup_table(set, {});
  CHECK(shown(summary, row_with(summary, {{"ranks", "8"}}), "efficiency_percent") == "80.0");
  CHECK(shown(summary, row_with(summary, {{"ranks", "4"}}), "efficiency_percent") == "n/a");
  CHECK(shown(speedup, row_with(speedup, {{"run", "8"}}), "remark").empty());
}

TEST_CASE("run_group: a transport that the trainer chose in both makes no base unfair") {
  // Recorded as files of now and older ones do, and asked for.
  for (const char* source : {"default", "older", "command line"}) {
    CAPTURE(source);
    const RunFolder folder;
    const bool older = std::string(source) == "older",
               chosen = older || std::string(source) == "default";
    struct Taken {
      std::size_t ranks;
      const char* transport;
      double time_s;
    };
    for (const Taken& one : {Taken{4, "shm", 0.004}, {8, "two-level", 0.005}}) {
      StudyRun run{"ddp", one.ranks, 32, one.time_s};
      run.change_info = [=](RunInfo& info) {
        info.config.push_back({"transport", older ? "auto" : one.transport, source});
        info.provenance.push_back({"transport", one.transport});
      };
      write_study(folder / fmt::format("{}.h5", one.ranks), run);
    }
    const RunSet set = loaded(folder);
    const Table summary = make_summary_table(set, {}), speedup = make_speedup_table(set, {});
    CHECK(shown(summary, row_with(summary, {{"ranks", "8"}}), "efficiency_percent") ==
          (chosen ? "80.0" : "n/a"));
    CHECK(shown(speedup, row_with(speedup, {{"run", "8"}}), "remark") ==
          "transport shm in the base, two-level here");
  }
}

TEST_CASE("group_times: an epoch that warms up stands for none beside later ones of a repeat") {
  const RunFolder folder;
  for (const std::size_t iterations : {5, 10})
    write_with(folder / fmt::format("{}.h5", iterations), {"ddp", 2, iterations, 5, 32, 2},
               [](RunInfo& info) {
                 info.provenance.push_back({"train_images", "320"});
               });
  const RunSet set = loaded(folder);
  const GroupTimes times = group_times(group_runs(set).at(0));
  CHECK(times[TimeBasis::kTraining].starts_s.size() == 1);
  CHECK_FALSE(times.first_epoch_only);
}

TEST_CASE("steady_rows: a slow beginning beyond the flagged one is found") {
  const RunFolder folder;
  const SampleShape shape{"ddp", 2, 120, 200, 32, 2};
  auto&& recorder = recorder_of(folder / "run.h5", sample_info(shape));
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] = (i < 12 ? 0.030 : 0.010) + (i % 2 == 0 ? 0.001 : 0);
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
  const auto run = folder.open("run.h5");
  const SteadyRows rows = steady_rows(*run);
  CHECK(rows.verdict == SteadyVerdict::kFound);
  CHECK(rows.by_rule == 2);
  CHECK(rows.by_test == 10);
  CHECK(rows.first == 12);
  CHECK(rows.kept() == 108);
  CHECK_FALSE(rows.keeps(11));
  CHECK(rows.keeps(12));
}

TEST_CASE("steady_rows: one iteration and none") {
  const RunFolder folder;
  write_sample(folder / "one.h5", {"none", 1, 1, 5, 32, 0});
  write_sample(folder / "none.h5", {"none", 1, 0, 5, 32, 0});
  const SteadyRows one = steady_rows(*folder.open("one.h5"));
  CHECK(one.by_rule == 1);
  CHECK(one.kept() == 0);
  CHECK_FALSE(one.keeps(0));
  const SteadyRows none = steady_rows(*folder.open("none.h5"));
  CHECK(none.by_rule == 0);
  CHECK(none.kept() == 0);
}

TEST_CASE("run_group: what must not be merged is refused with both files and both values") {
  struct {
    std::function<void(RunInfo&)> change;
    const char *what, *one, *other;
  } const cases[] = {
      {[](RunInfo& info) { info.topology[1].host = "node9"; }, "ranks per host", "host 1 (2 ranks)",
       "host 1 (1 rank), host 2 (1 rank)"},
      {[](RunInfo& info) { info.topology[0].device = "cpu: other"; }, "device",
       "cpu: test (2 ranks)", "cpu: other (1 rank), cpu: test (1 rank)"},
      {[](RunInfo& info) {
         for (RankPlace& place : info.topology)
           place.threads = 2;
       },
       "threads", "1 (2 ranks)", "2 (2 ranks)"},
      {[](RunInfo& info) {
         info.config.push_back({"epochs", "7", "command line"});
       },
       "epochs", "'1'", "7"},
      {[](RunInfo& info) { info.provenance[0].value = "def456"; }, "git revision", "abc123",
       "def456"},
      {[](RunInfo& info) {
         info.provenance.push_back({"mpi", "Open MPI 5"});
       },
       "mpi", "''", "Open MPI 5"},
  };
  for (const auto& one : cases) {
    INFO(one.what);
    const RunFolder folder;
    const RunSet set = pair(folder, one.change);
    REQUIRE(group_runs(set).size() == 1);
    const std::string text = error_text(ExitCode::kBadData, [&] { require_mergeable(set); });
    for (const char* part : {one.what, one.one, one.other, "a.h5", "b.h5", "--force-merge"})
      CHECK(contains(text, part));
    CHECK_FALSE(contains(text, "in all"));
    CHECK(merged_across(set) == std::string("MERGED ACROSS ") + one.what);
  }
}

TEST_CASE("run_group: other nodes, another job and other cells are no hindrance") {
  const RunFolder folder;
  const RunSet set = pair(folder, [](RunInfo& info) {
    for (RankPlace& place : info.topology)
      place.host = "node7";
    info.provenance.push_back({"env.SLURM_NODELIST", "node7"});
    info.provenance.push_back({"probed", "2 threads 1.1 ms"});
  });
  CHECK_NOTHROW(require_mergeable(set));
  CHECK(merged_across(set).empty());
  write_with(folder / "c.h5", {"allreduce"}, [](RunInfo& info) { info.topology[0].threads = 9; });
  CHECK_NOTHROW(require_mergeable(loaded(folder)));
}

TEST_CASE("run_group: options between ranks do not tell one rank from several") {
  const RunFolder folder;
  for (const std::size_t ranks : {1U, 2U, 4U})
    write_with(folder / (std::to_string(ranks) + ".h5"), {"ddp", ranks}, [&](RunInfo& info) {
      info.config.push_back({"transport", ranks == 1 ? "mpi" : "ring", "command line"});
    });
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 3);
  const auto names = differing_options(pointers_to(groups));
  CHECK(std::find(names.begin(), names.end(), "transport") == names.end());
}

TEST_CASE("spread: modes on one rank are a control, for the same batch only") {
  const RunSpread spread = spread_of({{"none", 1, 32, 0.010},
                                      {"allreduce", 1, 32, 0.011},
                                      {"ddp", 1, 32, 0.0122},
                                      {"ddp", 1, 64, 0.030},
                                      {"top-k", 1, 32, 0.020},  // encodes on one rank too
                                      {"ddp", 2, 32, 0.100}});
  CHECK(spread.factor == Approx(1.22));
  CHECK(spread_text(spread, "lenet") ==
        "runs of the same work differ by up to 22.0 % (lenet: 3 runs on one rank, 10 ms to 12.2 "
        "ms)");
}

TEST_CASE("spread: repeats of a cell count on any number of ranks; single runs say nothing") {
  CHECK(spread_of({{"ddp", 2, 32, 0.010}, {"ddp", 2, 32, 0.015}}).factor == Approx(1.5));
  CHECK_FALSE(spread_of({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.015}}).known());
  // Of several cells the largest counts, whichever is first.
  for (const double first_s : {0.012, 0.018})
    CHECK(spread_of({{"ddp", 2, 32, 0.010},
                     {"ddp", 2, 32, first_s},
                     {"ddp", 2, 64, 0.010},
                     {"ddp", 2, 64, 0.015}})
              .factor == Approx(std::max(first_s / 0.010, 1.5)));
  CHECK_FALSE(spread_of({{"ddp", 2, 32, 0.01, 0, 0, 0}, {"ddp", 2, 32, 0.01, 0, 0, 0}}).known());
}

TEST_CASE("difference: by the interval; without one, what runs of the same work differ by") {
  const RunSpread none, tenth{1.1, ""};
  const auto without = [](double value, std::size_t starts) {
    return Estimate{value, kNotMeasured, kNotMeasured, starts};
  };
  CHECK(difference_of({1.3, 1.2, 1.4, 9}, tenth) == Difference::kSlower);
  CHECK(difference_of({0.7, 0.6, 0.8, 9}, none) == Difference::kFaster);
  // An interval over starts or rounds holds the spread.
  CHECK(difference_of({1.1, 1.05, 1.2, 9}, tenth) == Difference::kSlower);
  CHECK(difference_of({1.0, 0.9, 1.1, 9}, none) == Difference::kNone);
  CHECK(difference_of(without(1.05, 1), tenth) == Difference::kWithinSpread);
  CHECK(difference_of(without(0.95, 2), tenth) == Difference::kWithinSpread);
  CHECK(difference_of(without(1.3, 1), tenth) == Difference::kOneRunEach);
  CHECK(difference_of(without(1.05, 1), none) == Difference::kOneRunEach);
  CHECK(difference_of(without(1.3, 2), tenth) == Difference::kTooFew);
  CHECK(difference_of(without(kNotMeasured, 0), tenth) == Difference::kUnknown);
  CHECK(is_below({0.8, 0.7, 0.9, 3}, {1, 1, 1, 1}, none));
  CHECK_FALSE(is_below({0.8, 0.7, 1.1, 3}, {1, 1, 1, 1}, tenth));
  CHECK(is_below(without(0.8, 1), {1, 1, 1, 1}, tenth));
  CHECK_FALSE(is_below(without(0.95, 1), {1, 1, 1, 1}, tenth));
  CHECK_FALSE(is_below(without(0.8, 1), {1, 1, 1, 1}, none));
}

TEST_CASE("ratio over starts: the median of each counts, however many iterations it has") {
  const auto times = [](const std::vector<std::vector<double>>& starts) {
    StartTimes all;
    for (const auto& start : starts)
      all.add(start);
    return all;
  };
  const StartTimes one = times({{1, 2, 3}, {4, 4}, {kNotMeasured}});
  CHECK(one.starts_s == std::vector<double>{2, 4});
  CHECK(ratio_over_starts(one, times({{1}})).basis == "2 and 1 starts");
  CHECK(ratio_over_starts(one, times({{1}})).value == 3);
  CHECK_FALSE(ratio_over_starts(one, one).has_interval());
  CHECK(std::isnan(ratio_over_starts(one, times({})).value));
  // Geometric means 2 and 4; equal scatter of the logarithms, so Student's with 4 degrees.
  const TimeRatio ratio = ratio_over_starts(times({{2}, {4}, {8, 8, 8}}), times({{1}, {2}, {4}}));
  CHECK(ratio.value == Approx(2));
  CHECK(std::log(ratio.high / 2) ==
        Approx(2.776445 * std::log(2) * std::sqrt(2.0 / 3)).epsilon(1e-6));
  CHECK(ratio.basis == "3 starts each");
}

TEST_CASE(
    "ratio over starts: intervals miss as often as they state, iterations of two starts do not") {
  constexpr int kDraws = 4000;
  std::mt19937 random(5);
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += static_cast<double>(random()) / 4294967296.0;
    return sum;
  };
  for (const auto& shape :
       {std::pair{std::pair{3, 3}, 0.05}, {{3, 5}, 0.05}, {{5, 5}, 0.05}, {{4, 4}, 0.15}}) {
    const auto starts = shape.first;
    const double scatter = shape.second;
    CAPTURE(starts.first);
    CAPTURE(starts.second);
    CAPTURE(scatter);
    int missed = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      StartTimes one, other;
      // Starts differ by 5 % (or 15 % on one side), the iterations of each by 1 %.
      for (auto* side : {&one, &other})
        for (int i = 0; i < (side == &one ? starts.first : starts.second); ++i) {
          const double start = std::exp((side == &one ? 0.05 : scatter) * normal());
          std::vector<double> iterations;
          for (int j = 0; j < 5; ++j)
            iterations.push_back(start * std::exp(0.01 * normal()));
          side->add(iterations);
        }
      missed += !ratio_over_starts(one, other).holds(1);
    }
    const double part = static_cast<double>(missed) / kDraws;
    CHECK(part > 0.025);
    CHECK(part < 0.075);
  }
}

TEST_CASE("spread: table modes-paired calls no mode on one rank faster, and says what is noise") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"none", 1, 32, 0.0085});
  write_study(folder / "b.h5", {"allreduce", 1, 32, 0.0100});
  write_study(folder / "c.h5", {"ddp", 1, 32, 0.0122});
  write_study(folder / "d.h5", {"allreduce", 2, 32, 0.010});
  write_study(folder / "e.h5", {"ddp", 2, 32, 0.0061});
  const Table table = make_modes_paired_table(loaded(folder), {});
  CHECK(shown(table, 0, "verdict") == "within the spread");
  CHECK(shown(table, 1, "verdict") == "reference");
  CHECK(shown(table, 2, "verdict") == "within the spread");
  CHECK(shown(table, 4, "verdict") == "one start");
  CHECK(contains(all_notes(table),
                 "differ by up to 43.5 % (lenet: 3 runs on one rank, 8.5 ms to "
                 "12.2 ms); smaller differences between single starts are noise"));
}
