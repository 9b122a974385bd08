// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>

#include "analysis/figures/rank_figures.h"
#include "analysis/read/columns.h"
#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "stats/statistics.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

using Points = std::vector<std::int64_t>;

std::unique_ptr<RunReader> sample(const RunFolder& folder, const SampleShape& shape) {
  write_sample(folder / "run.h5", shape);
  return folder.open("run.h5");
}

std::vector<ModeFigures> figures_of(RunReader& run, const Points& points) {
  return mode_figures(run, steady_rows(run), points);
}

}  // namespace

TEST_CASE("report: loss points, and how they are thinned") {
  CHECK(loss_points(40, 20, 10) == Points{20, 40});
  CHECK(loss_points(39, 20, 10) == Points{20});
  CHECK(loss_points(19, 20, 10).empty());
  CHECK(loss_points(0, 20, 10).empty());
  CHECK(loss_points(40, 0, 10).empty());
  CHECK(loss_points(200, 20, 10).size() == 10);
  CHECK(loss_points(220, 20, 10) == Points{40, 80, 120, 160, 200});  // 11 points: every 2nd
  CHECK(loss_points(1000, 1, 10) == Points{100, 200, 300, 400, 500, 600, 700, 800, 900, 1000});
}

TEST_CASE("report: figures of a run, by hand") {
  const RunFolder folder;
  const auto run = sample(folder, {});  // 12 iterations of 10 + 0.1·i + rank ms, 64 samples each
  const auto figures = mode_figures(*run, steady_rows(*run), {1, 12, 13});
  REQUIRE(figures.size() == 2);
  // Without the first: i = 1 … 11, mean 6. Without two of warm-up: i = 2 … 11, median 6.5.
  CHECK(figures[0].mean_s == Approx(0.0106));
  CHECK(figures[1].mean_s == Approx(0.0116));
  CHECK(figures[0].steady_s.count == 10);
  CHECK(figures[0].steady_s.median == Approx(0.01065));
  CHECK(figures[0].steady_s.p95 == Approx(0.011055));  // h = 9·0.95 = 8.55: i = 10.55
  CHECK(figures[0].samples_per_s == Approx(64 / 0.0106));
  CHECK(figures[1].samples_per_s == Approx(64 / 0.0116));
  CHECK(figures[0].loss_at[0] == Approx(2.3));
  CHECK(figures[1].loss_at[1] == Approx(2.3 * std::exp(-0.55) + 0.01));
  CHECK(std::isnan(figures[0].loss_at[2]));
  // Epoch 2 has only iterations 10 and 11: (3 + 2) + (3 + 3) right of 2·32 on rank 0.
  CHECK(figures[0].train_accuracy == Approx(11.0 / 64));
  CHECK(figures[1].train_accuracy == Approx(13.0 / 64));
  CHECK(figures[0].test_accuracy == 0.5);
}

TEST_CASE("report: the accuracy of a whole epoch is the recorded one") {
  const RunFolder folder;
  SampleShape shape;
  shape.iterations = 10;
  const auto figures = figures_of(*sample(folder, shape), {});
  CHECK(figures[0].train_accuracy == 0.375);
  CHECK(figures[1].train_accuracy == Approx(0.385));
}

TEST_CASE("report: a trace, which holds no outputs, has no accuracy") {
  const RunFolder folder;
  const SampleShape shape{"none", 1, 2, 5, 32, 0};
  RunInfo info = sample_info(shape);
  info.provenance.push_back({"source", std::string(kTracesSource)});
  auto&& recorder = recorder_of(folder / "run.h5", info);
  recorder.add(sample_row(shape, 0));
  recorder.finish(RunStatus::kComplete);
  CHECK(std::isnan(figures_of(*folder.open("run.h5"), {})[0].train_accuracy));
}

TEST_CASE("report: the mean loss weighs iterations by their samples") {
  const RunFolder folder;
  const SampleShape shape{"none", 1, 2, 5, 32, 0};
  auto&& recorder = recorder_of(folder / "run.h5", sample_info(shape));
  IterationRow row = sample_row(shape, 0);
  row.samples = 30;
  row.ranks[0].loss = 2;
  recorder.add(row);
  row.samples = 10;
  row.ranks[0].loss = 4;
  recorder.add(row);
  recorder.finish(RunStatus::kComplete);
  CHECK(figures_of(*folder.open("run.h5"), {})[0].mean_loss == 2.5);
}

TEST_CASE("report: runs of no and of one iteration give NaN, not 0") {
  const RunFolder folder;
  {
    const auto figures = figures_of(*sample(folder, {"none", 1, 0, 5, 32, 0}), {20});
    CHECK(std::isnan(figures[0].mean_loss));
    CHECK(std::isnan(figures[0].train_accuracy));
    CHECK(std::isnan(figures[0].samples_per_s));
    CHECK(figures[0].steady_s.count == 0);
  }
  const RunFolder other;
  const auto figures = figures_of(*sample(other, {"none", 1, 1, 5, 32, 0}), {1});
  CHECK(figures[0].loss_at[0] == Approx(2.3));
  CHECK(std::isnan(figures[0].mean_s));
  CHECK(std::isnan(figures[0].samples_per_s));
  CHECK(figures[0].steady_s.count == 0);  // the first iteration is never steady
}

TEST_CASE("report: the split, by hand") {
  const RunFolder folder;
  const auto run = sample(folder, {});
  const auto split = split_figures(*run, steady_rows(*run));
  REQUIRE(split.size() == 2);
  CHECK(split[0].iterations == 10);
  CHECK(split[0][Phase::kIteration] == Approx(0.01065));
  CHECK(split[0][Phase::kCompute] == Approx(0.006));
  CHECK(split[0][Phase::kCommBusy] == Approx(0.003));
  CHECK(split[0][Phase::kOther] == Approx(0.00365));
  CHECK(split[0].percent(Phase::kExposed) == Approx(100 * 0.001 / 0.01065));
  CHECK(split[0].gap() < 1e-12);
  CHECK(std::isnan(split[0][Phase::kWait]));
  CHECK(split[1][Phase::kWait] == Approx(0.00025));
  const SplitFigures mean = mean_of(split);
  CHECK(mean.iterations == 10);
  CHECK(mean[Phase::kIteration] == Approx(0.01115));
  CHECK(mean[Phase::kWait] == Approx(0.00025));
  CHECK(std::isnan(mean_of(std::vector<SplitFigures>())[Phase::kCompute]));
}

TEST_CASE("report: warm-up that covers the whole run leaves nothing") {
  const RunFolder folder;
  const auto run = sample(folder, {"ddp", 2, 3, 5, 32, 3});
  const auto split = split_figures(*run, steady_rows(*run));
  CHECK(split[0].iterations == 0);
  CHECK(std::isnan(split[0][Phase::kIteration]));
  CHECK(std::isnan(split[0].percent(Phase::kCompute)));
}

TEST_CASE("report: mean over ranks of each iteration") {
  const RunFolder folder;
  const auto means =
      mean_over_ranks(*sample(folder, {"ddp", 2, 3, 5}), [](RunReader&, std::size_t, std::size_t) {
        return Matrix{3, 2, {1, 3, kNan, 5, kNan, kNan}};
      });
  CHECK(means[0] == 2);
  CHECK(means[1] == 5);
  CHECK(std::isnan(means[2]));
}

TEST_CASE("report: moving median") {
  CHECK(moving_median({9, 1, 2, 3, 100}, 3) == std::vector<double>{5, 2, 2, 3, 51.5});
  CHECK(moving_median({80, 1, 2, 3, 4}, 5)[0] == 2);
  CHECK(moving_median({}, 5).empty());
  CHECK(moving_median({7}, 5) == std::vector<double>{7});
  const auto gap = moving_median({1, kNan, 3}, 1);
  CHECK(gap[0] == 1);
  CHECK(std::isnan(gap[1]));
}

TEST_CASE("table traffic-total: of a resumed run the last process alone, as the note says") {
  const auto notes_of = [](std::int64_t iterations) {
    const RunFolder folder;
    const SampleShape shape;
    auto&& recorder = recorder_of(folder / "run.h5", sample_info(shape));
    for (std::size_t i = 0; i < shape.iterations; ++i)
      recorder.add(sample_row(shape, i));
    RankTraffic moved;
    moved.calls[0] = moved.sent_bytes[0] = moved.received_bytes[0] = 8 * iterations;
    recorder.add(TrafficRow{"start", 0, std::vector<RankTraffic>(shape.ranks)});
    recorder.add(TrafficRow{"trained", iterations, {moved, moved}});
    recorder.finish(RunStatus::kComplete);
    const Table table = make_traffic_total_table(loaded(folder), {});
    CHECK(shown(table, 0, "calls") == "8.00");
    CHECK(shown(table, 0, "iterations") == std::to_string(iterations));
    return all_notes(table);
  };
  CHECK_FALSE(contains(notes_of(12), "resumed"));
  CHECK(contains(notes_of(5), "run (5 of 12)"));
}
