#include <cmath>

#include <doctest/doctest.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/comparisons.h"
#include "analysis/figures/quantized_figures.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/read/columns.h"
#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_tables.h"
#include "stats/statistics.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

// Worked by hand. The example of the conventions: S = 1e9 bytes, 4 ranks, 10 iterations, 5 s of
// communication in all, so 0.5 s a message and 2(n − 1)/n = 1.5.
TEST_CASE("formulas: conventions of bandwidth") {
  const EpochCommunication epoch{1e9, 4, 10, 5};
  CHECK(bandwidth(BandwidthConvention::kBusbw, epoch) == Approx(3e9));
  CHECK(bandwidth(BandwidthConvention::kMessage, epoch) == Approx(0.2e9));
  CHECK(bandwidth(BandwidthConvention::kRingEpoch, epoch) == Approx(0.3e9));
  CHECK(bandwidth(BandwidthConvention::kTotalVolume, epoch) == Approx(12e9));
  for (std::size_t c = 0; c < kConventionNames.size(); ++c) {
    const auto convention = static_cast<BandwidthConvention>(c);
    CHECK(std::isnan(bandwidth(convention, {1e9, 1, 10, 5})));  // one rank sends nothing
    CHECK(std::isnan(bandwidth(convention, {1e9, 4, 10, 0})));
    CHECK(std::isnan(bandwidth(convention, {1e9, 4, 10, -5})));
    CHECK(std::isnan(bandwidth(convention, {kNotMeasured, 4, 10, 5})));
    CHECK(parse_convention(convention_name(convention)) == convention);
    CHECK_FALSE(convention_formula(convention).empty());
  }
  CHECK_FALSE(parse_convention("bus"));
  CHECK(convention_unit(BandwidthConvention::kRingEpoch) == "GiB/s");
  CHECK(convention_unit_bytes(BandwidthConvention::kRingEpoch) == 1073741824.0);
  CHECK(convention_unit(BandwidthConvention::kBusbw) == "GB/s");
}

// nccl-tests: an all-reduce of 1 MB on 8 ranks in 1 ms has algbw 1 GB/s, busbw 1.75 GB/s.
TEST_CASE("formulas: algbw and busbw of each collective") {
  using enum CollectiveKind;
  CHECK(algbw(1e6, 1e-3) == Approx(1e9));
  CHECK(busbw(kAllReduce, 1e6, 8, 1e-3) == Approx(1.75e9));
  CHECK(busbw(kBroadcast, 1e6, 8, 1e-3) == Approx(1e9));
  CHECK(busbw(kReduce, 1e6, 8, 1e-3) == Approx(1e9));
  // S counts all ranks: 8 MB, of which 7 cross the root's link.
  CHECK(message_bytes(kGather, 1e6, 8) == 8e6);
  CHECK(message_bytes(kAllReduce, 1e6, 8) == 1e6);
  CHECK(busbw(kGather, 1e6, 8, 1e-3) == Approx(7e9));
  CHECK(busbw(kScatter, 1e6, 8, 1e-3) == Approx(7e9));
  CHECK(busbw(kAllGather, 1e6, 8, 1e-3) == Approx(7e9));
  for (const auto kind : {kAllReduce, kBroadcast, kReduce, kGather, kScatter, kAllGather}) {
    CHECK(std::isnan(busbw(kind, 1e6, 1, 1e-3)));
    CHECK(std::isnan(busbw(kind, 1e6, 8, 0)));
  }
  CHECK(std::isnan(busbw_factor(kBarrier, 8)));
}

TEST_CASE("formulas: predicted all-reduce times") {
  CHECK(allreduce_tree_s(1e9, 1e10, 8) == Approx(0.3));
  CHECK(allreduce_ring_s(1e9, 1e10, 8) == Approx(0.175));
  CHECK(allreduce_tree_s(1e9, 1e10, 2) == Approx(allreduce_ring_s(1e9, 1e10, 2)));
  CHECK(allreduce_tree_s(1e9, 1e10, 1) == 0);
  CHECK(allreduce_ring_s(1e9, 1e10, 1) == 0);
  CHECK(std::isnan(allreduce_ring_s(1e9, 0, 8)));
  CHECK(std::isnan(allreduce_tree_s(1e9, 1e10, 0)));
}

TEST_CASE("formulas: speedup, efficiency, derived split") {
  CHECK(speedup(60, 20) == 3);
  CHECK(strong_efficiency(60, 1, 20, 4) == Approx(0.75));
  CHECK(strong_efficiency(60, 2, 20, 4) == Approx(1.5));  // super-linear stays so
  CHECK(weak_efficiency(0.1, 0.125) == Approx(0.8));
  CHECK(weak_speedup(0.1, 0.125, 4) == Approx(3.2));
  CHECK(derived_compute(60, 4) == 15);
  CHECK(derived_communication(60, 20, 4) == 5);
  CHECK(derived_communication(60, 12, 4) == -3);  // shown as it is
  CHECK(derived_communication(60, 60, 1) == 0);
  CHECK(std::isnan(speedup(60, 0)));
  CHECK(std::isnan(speedup(-60, 20)));
  CHECK(std::isnan(strong_efficiency(60, 1, 20, 0)));
  CHECK(std::isnan(derived_communication(kNotMeasured, 20, 4)));
}

TEST_CASE("formulas: accuracy of a quantized network, and what it lost") {
  QuantizedStepRow whole, small, none;
  whole.name = "fp32";
  whole.images = small.images = 400;
  whole.correct = 300;
  small.correct = 290;
  CHECK(accuracy_percent(whole) == Approx(75));
  CHECK(std::isnan(accuracy_percent(none)));
  Quantization study;
  CHECK(std::isnan(drop_points(study, small)));
  study.steps = {whole, small};
  CHECK(drop_points(study, small) == Approx(2.5));
}

TEST_CASE("tables: transfer times by hand") {
  const IterationRow row = sample_row({"ddp", 2}, 5);
  // All-reduce: 0.9 ms on rank 0, 0.91 ms on rank 1: the shorter one.
  CHECK(transfer_s(row, 0) == Approx(0.0009));
  // Broadcast: rank 1 comes 10 us after rank 0, and leaves 20 us after it.
  CHECK(transfer_s(row, 1) == Approx(0.00091));
}

TEST_CASE("tables: bandwidth against calibration, by hand") {
  const TestFolder folder;
  std::vector<CalibrationRow> calibration;
  // t = 50 us + s · 97.65625 ns: at 4,096 bytes 450 us, half of what training took.
  for (const std::int64_t bytes : {1024, 2048, 4096, 8192}) {
    CalibrationRow row;
    row.transport = "mpi";
    row.cadence = "isolated";
    row.bytes = bytes;
    row.repetitions = 9;
    row.median_s = 50e-6 + static_cast<double>(bytes) * 97.65625e-9;
    calibration.push_back(row);
    row.cadence = "back-to-back";
    row.median_s /= 10;
    calibration.push_back(row);
  }
  write_changed(folder / "run.h5", {"ddp", 2}, {}, {{"train_images", "640"}}, nothing, calibration);
  TableOptions options;
  options.conventions = {BandwidthConvention::kBusbw, BandwidthConvention::kMessage,
                         BandwidthConvention::kRingEpoch, BandwidthConvention::kTotalVolume};
  const Table table = make_bandwidth_table(loaded_with_failures(folder), options);
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 0, "collective") == "allreduce");
  CHECK(shown(table, 1, "collective") == "broadcast");
  CHECK(shown(table, 0, "calls") == "1");
  CHECK(number(table, 0, "message_mib") == 4096 / 1048576.0);
  CHECK(number(table, 0, "transfer_ms") == Approx(0.9));
  CHECK(number(table, 0, "algbw_gb_per_s") == Approx(4096 / 0.0009 / 1e9));
  CHECK(number(table, 0, "busbw_gb_per_s") == Approx(4096 / 0.0009 / 1e9));  // 2(n-1)/n = 1
  CHECK(number(table, 0, "utilization_at_size_percent") == Approx(50));
  CHECK(number(table, 0, "fitted_ms") == Approx(0.45));
  // 10 iterations an epoch, 3 ms of comm busy each.
  CHECK(shown(table, 0, "epoch_iterations") == "10");
  CHECK(number(table, 0, "busbw_measured_gb_per_s") == Approx(4096 / 0.003 / 1e9));
  CHECK(number(table, 0, "message_measured_gb_per_s") == Approx(4096 / 0.03 / 1e9));
  CHECK(number(table, 0, "ring_epoch_measured_gib_per_s") == Approx(4096 / 0.03 / 1073741824));
  CHECK(number(table, 0, "total_volume_measured_gb_per_s") == Approx(2 * 40960 / 0.03 / 1e9));
  CHECK(shown(table, 0, "busbw_derived_gb_per_s") == "n/a");       // no base
  CHECK(shown(table, 1, "utilization_at_size_percent") == "n/a");  // not calibrated
  CHECK(shown(table, 1, "busbw_measured_gb_per_s") == "n/a");
  options.link_bytes_per_s = 1e6;
  const Table linked = make_bandwidth_table(loaded_with_failures(folder), options);
  CHECK(number(linked, 0, "tree_ms") == Approx(4.096));
  CHECK(number(linked, 0, "ring_ms") == Approx(4.096));
}

TEST_CASE("calibration curve: between two sizes on logarithmic axes, nothing beyond them") {
  LinkCurve curve;
  curve.bytes = {1024, 4096, 65536};
  curve.time_s = {1e-4, 9e-4, 2e-3};
  CHECK(curve.time_at(4096) == 9e-4);
  CHECK(curve.time_at(2048) == Approx(3e-4));
  CHECK(std::isnan(curve.time_at(1000)));
  CHECK(std::isnan(curve.time_at(65537)));
}

TEST_CASE("tables: bandwidth of one rank, and without calibration") {
  const TestFolder folder;
  write_sample(folder / "one.h5", {"ddp", 1});
  write_sample(folder / "two.h5", {"ddp", 2});
  const Table table = make_bandwidth_table(loaded_with_failures(folder), {});
  const std::size_t one = row_with(table, {{"run", "one"}});
  CHECK(shown(table, one, "busbw_gb_per_s") == "n/a");
  CHECK(shown(table, one, "algbw_gb_per_s") == "n/a");
  CHECK(contains(shown(table, one, "remark"), "one rank"));
  const std::size_t two = row_with(table, {{"run", "two"}});
  CHECK(shown(table, two, "utilization_of_plateau_percent") == "n/a");
  CHECK(shown(table, two, "remark") == "no calibration in the run");
  CHECK(contains(all_notes(table), "gradsync-train --calibrate"));
}

TEST_CASE("tables: a collective without bytes says nothing of bandwidth") {
  const TestFolder folder;
  write_changed(folder / "run.h5", {}, {}, {}, [](IterationRow& row) { row.buckets[1].bytes = 0; });
  const RunSet set = loaded_with_failures(folder);
  const auto figures = collective_figures(group_runs(set)[0]);
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].sizes == std::vector<std::int64_t>{4096});
}

TEST_CASE("tables: sampled iterations are counted once") {
  const TestFolder folder;
  write_sample(folder / "short.h5", {"ddp", 2, 60, 100, 32, 2});
  write_sample(folder / "long.h5", {"ddp", 2, 500, 1000, 64, 2});
  const RunSet set = loaded_with_failures(folder);
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  const auto few = collective_figures(groups[0]), many = collective_figures(groups[1]);
  CHECK(few[0].transfer_s.size() == set.runs[0].steady.kept());
  CHECK(many[0].transfer_s.size() == 200);
}

namespace {

using Points = std::vector<std::int64_t>;

std::unique_ptr<RunReader> sample(const TestFolder& folder, const SampleShape& shape) {
  write_sample(folder / "run.h5", shape);
  return open_run(folder / "run.h5");
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
  const TestFolder folder;
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
  const TestFolder folder;
  SampleShape shape;
  shape.iterations = 10;
  const auto figures = figures_of(*sample(folder, shape), {});
  CHECK(figures[0].train_accuracy == 0.375);
  CHECK(figures[1].train_accuracy == Approx(0.385));
}

TEST_CASE("report: the mean loss weighs iterations by their samples") {
  const TestFolder folder;
  const SampleShape shape{"none", 1, 2, 5, 32, 0};
  Recorder recorder(folder / "run.h5", sample_info(shape));
  IterationRow row = sample_row(shape, 0);
  row.samples = 30;
  row.ranks[0].loss = 2;
  recorder.add(row);
  row.samples = 10;
  row.ranks[0].loss = 4;
  recorder.add(row);
  recorder.finish(RunStatus::kComplete);
  CHECK(figures_of(*open_run(folder / "run.h5"), {})[0].mean_loss == 2.5);
}

TEST_CASE("report: runs of no and of one iteration give NaN, not 0") {
  const TestFolder folder;
  {
    const auto figures = figures_of(*sample(folder, {"none", 1, 0, 5, 32, 0}), {20});
    CHECK(std::isnan(figures[0].mean_loss));
    CHECK(std::isnan(figures[0].train_accuracy));
    CHECK(std::isnan(figures[0].samples_per_s));
    CHECK(figures[0].steady_s.count == 0);
  }
  const TestFolder other;
  const auto figures = figures_of(*sample(other, {"none", 1, 1, 5, 32, 0}), {1});
  CHECK(figures[0].loss_at[0] == Approx(2.3));
  CHECK(std::isnan(figures[0].mean_s));
  CHECK(std::isnan(figures[0].samples_per_s));
  CHECK(figures[0].steady_s.count == 0);  // the first iteration is never steady
}

TEST_CASE("report: the split, by hand") {
  const TestFolder folder;
  const auto run = sample(folder, {});
  const auto split = split_figures(*run);
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
  const TestFolder folder;
  const auto split = split_figures(*sample(folder, {"ddp", 2, 3, 5, 32, 3}));
  CHECK(split[0].iterations == 0);
  CHECK(std::isnan(split[0][Phase::kIteration]));
  CHECK(std::isnan(split[0].percent(Phase::kCompute)));
}

TEST_CASE("report: mean over ranks of each iteration") {
  const Matrix matrix{3, 2, {1, 3, kNan, 5, kNan, kNan}};
  const auto means = mean_over_ranks(matrix);
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
    const TestFolder folder;
    const SampleShape shape;
    Recorder recorder(folder / "run.h5", sample_info(shape));
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
