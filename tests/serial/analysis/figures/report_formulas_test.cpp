// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/comparisons.h"
#include "analysis/figures/quantized_figures.h"
#include "serial/study_tables.h"

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
  CHECK(derived_compute(60, 4) == 15);
  CHECK(derived_communication(60, 20, 4) == 5);
  CHECK(derived_communication(60, 12, 4) == -3);  // shown as it is
  CHECK(derived_communication(60, 60, 1) == 0);
  CHECK(std::isnan(speedup(60, 0)));
  CHECK(std::isnan(speedup(-60, 20)));
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
  IterationRow row = sample_row({"ddp", 2}, 5);
  // All-reduce: 0.9 ms on rank 0, 0.91 ms on rank 1: the shorter one.
  CHECK(transfer_s(row, 0) == Approx(0.0009));
  // Broadcast: rank 1 comes 10 us after rank 0, and leaves 20 us after it.
  CHECK(transfer_s(row, 1) == Approx(0.00091));
  // A reduce-scatter has no root, as the all-reduce.
  row.buckets[0].kind = CollectiveKind::kReduceScatter;
  CHECK(transfer_s(row, 0) == Approx(0.0009));
}

TEST_CASE("tables: bandwidth against calibration, by hand") {
  const RunFolder folder;
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
  CHECK(shown(table, 0, "busbw_derived_gb_per_s") == "n/a");  // no base
  CHECK(shown(table, 1, "utilization_at_size_percent") == "n/a");
  CHECK(contains(shown(table, 1, "remark"), "no calibration of broadcast"));
  CHECK(shown(table, 1, "busbw_measured_gb_per_s") == "n/a");
  options.link_bytes_per_s = 1e6;
  const Table linked = make_bandwidth_table(loaded_with_failures(folder), options);
  CHECK(number(linked, 0, "tree_ms") == Approx(4.096));
  CHECK(number(linked, 0, "ring_ms") == Approx(4.096));
}

TEST_CASE("tables: bandwidth of a mode that exchanges in one of four iterations") {
  const auto of = [](const SampleShape& shape, const std::vector<ConfigEntry>& options) {
    const RunFolder folder;
    write_changed(folder / "run.h5", shape, options, {{"train_images", "640"}});
    TableOptions wanted;
    wanted.conventions = {BandwidthConvention::kBusbw, BandwidthConvention::kMessage};
    return make_bandwidth_table(loaded_with_failures(folder), wanted);
  };
  const Table each = of({"local-sgd", 2}, {{"local-steps", "1", "command line"}}),
              fourth = of({"local-sgd", 2}, {{"local-steps", "4", "command line"}});
  CHECK(number(fourth, 0, "busbw_measured_gb_per_s") ==
        Approx(number(each, 0, "busbw_measured_gb_per_s") / 4));
  CHECK(number(fourth, 0, "message_measured_gb_per_s") ==
        Approx(number(each, 0, "message_measured_gb_per_s")));
}

TEST_CASE("tables: what a transport moves itself is held against its own calibration") {
  using enum CollectiveKind;
  using Names = std::vector<std::string>;
  const Names by_mpi{"mpi", "mpi-ring"}, by_ring{"mpi-ring", "mpi"};
  CHECK(calibrated_as("tcp-ring", "zero1", kAllGather) == Names{"tcp-ring"});
  CHECK(calibrated_as("tcp-ring", "fsdp", kReduceScatter) == Names{"tcp-ring"});
  CHECK(calibrated_as("tcp-ring", "top-k", kAllGather) == by_mpi);
  CHECK(calibrated_as("tcp-ring", "ddp", kBroadcast) == by_ring);
  CHECK(calibrated_as("shm", "ddp", kAllReduce) == Names{"shm"});
  CHECK(calibrated_as("shm", "zero1", kAllGather) == Names{"shm"});
  CHECK(calibrated_as("shm", "fsdp", kAllGather) == by_ring);
  CHECK(calibrated_as("two-level", "zero1", kAllGather) == by_ring);
  CHECK(calibrated_as("mpi", "ddp", kAllReduce) == by_ring);
  CHECK(calibrated_as("mpi", "powersgd", kAllReduce) == by_ring);
  CHECK(calibrated_as("mpi", "allreduce", kAllReduce) == by_mpi);
  CHECK(calibrated_as("mpi", "zero1", kReduceScatter) == Names{"mpi-ring"});
  CHECK(calibrated_as("mpi", "top-k", kAllGather) == by_mpi);
  CHECK(calibrated_as("gloo", "pytorch-ddp", kBroadcast) == Names{"gloo"});
}

TEST_CASE("calibration curve: between two sizes on logarithmic axes, nothing beyond them") {
  LinkCurve curve;
  curve.bytes = {1024, 4096, 65536};
  curve.times_s = {1e-4, 9e-4, 2e-3};
  CHECK(curve.time_at(4096) == 9e-4);
  CHECK(curve.time_at(2048) == Approx(3e-4));
  CHECK(std::isnan(curve.time_at(1000)));
  CHECK(std::isnan(curve.time_at(65537)));
}

TEST_CASE("tables: bandwidth of one rank, and without calibration") {
  const RunFolder folder;
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
  const RunFolder folder;
  write_changed(folder / "run.h5", {}, {}, {}, [](IterationRow& row) { row.buckets[1].bytes = 0; });
  const RunSet set = loaded_with_failures(folder);
  const auto figures = collective_figures(group_runs(set)[0]);
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].sizes == std::vector<std::int64_t>{4096});
}

TEST_CASE("speedup: one rank without an exchange is compared with itself alone") {
  const RunFolder folder;
  write_changed(folder / "lamb.h5", {"none", 1}, {{"optimizer", "lamb", "command line"}}, {});
  write_changed(folder / "sgd.h5", {"none", 1}, {{"optimizer", "sgd", "command line"}}, {});
  const RunSet set = loaded_with_failures(folder);
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  for (const Comparison& one : comparisons(groups))
    CHECK(one.base == one.group);
}

TEST_CASE("tables: bandwidth is that of most iterations, not of a last one with fewer images") {
  const RunFolder folder;
  write_changed(folder / "run.h5", {}, {}, {}, [](IterationRow& row) {
    if (row.iteration == static_cast<std::int64_t>(SampleShape().iterations) - 1)
      row.buckets[0].bytes = row.buckets[1].bytes = 16;
  });
  const RunSet set = loaded_with_failures(folder);
  const auto figures = collective_figures(group_runs(set)[0]);
  REQUIRE_FALSE(figures.empty());
  CHECK(figures[0].payload_bytes() > 1000);
  CHECK(figures[0].transfer_s.size() == set.runs[0].steady.kept() - 1);
}

TEST_CASE("tables: sampled iterations are counted once") {
  const RunFolder folder;
  write_sample(folder / "short.h5", {"ddp", 2, 60, 100, 32, 2});
  write_sample(folder / "long.h5", {"ddp", 2, 500, 1000, 64, 2});
  const RunSet set = loaded_with_failures(folder);
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  const auto few = collective_figures(groups[0]), many = collective_figures(groups[1]);
  CHECK(few[0].transfer_s.size() == set.runs[0].steady.kept());
  CHECK(many[0].transfer_s.size() == 200);
}
