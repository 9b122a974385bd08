#include <doctest/doctest.h>

#include "analysis/metrics/collective_figures.h"
#include "analysis/metrics/link_curve.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

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
