// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/plots/plots.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

TEST_CASE("tables: large batch, the remedy and the epoch") {
  const RunFolder folder;
  const ConfigEntry plain{"lr", "0.1", "default"};
  write_changed(folder / "small.h5", {"ddp", 2, 10, 5, 32, 2}, {plain}, {});
  write_changed(folder / "big.h5", {"ddp", 2, 10, 5, 256, 2}, {plain}, {});
  write_changed(folder / "help.h5", {"ddp", 2, 10, 5, 256, 2},
                {{"lr", "0.8", "command line"},
                 {"accumulate", "4", "command line"},
                 {"warmup-epochs", "5", "command line"},
                 {"optimizer", "sgd", "default"}},
                {});
  const RunSet set = loaded_with_failures(folder);
  const Table table = make_large_batch_table(set, {});
  CHECK(shown(table, row_with(table, {{"run", "small"}}), "remedy") == "none");
  CHECK(shown(table, row_with(table, {{"run", "big"}}), "remedy") == "none");
  CHECK(shown(table, row_with(table, {{"run", "help"}}), "remedy") ==
        "lr 0.8 (0.1 at batch 64), warmup-epochs 5");
  CHECK(shown(table, 0, "epoch") == "2");
  CHECK(shown(table, 0, "train_loss") == "1.9000");
  CHECK(shown(table, 0, "test_accuracy_percent") == "50.00");
  TableOptions options;
  options.at_epoch = 1;
  CHECK(shown(make_large_batch_table(set, options), 0, "train_loss") == "2.0000");
  options.at_epoch = 9;
  const Table beyond = make_large_batch_table(set, options);
  CHECK(shown(beyond, 0, "train_loss") == "n/a");
  CHECK(shown(beyond, 0, "remark") == "did not reach the epoch");
}

namespace {

/// A run of one epoch more than the table's early one, with this test accuracy at every epoch.
void write_accuracy(const RunFolder::File& path, std::int64_t batch_per_rank, double accuracy,
                    const std::vector<ConfigEntry>& options) {
  const SampleShape shape{"ddp", 2, 6, 1, batch_per_rank, 2};
  RunInfo info = sample_info(shape);
  info.config.insert(info.config.end(), options.begin(), options.end());
  auto&& recorder = recorder_of(path, info);
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    recorder.add(sample_row(shape, i));
    EpochRow epoch = sample_epoch(shape, i);
    for (RankEpoch& rank : epoch.ranks)
      rank.test_accuracy = accuracy, rank.test_loss = 1 - accuracy;
    recorder.add(epoch);
  }
  recorder.finish(RunStatus::kComplete);
}

/// 50, 52, 54 % at batch 64; 20, 22, 24 % plain and 40, 42, 44 % with LARS at 512.
void write_accuracy_study(const RunFolder& folder) {
  for (int seed = 0; seed < 3; ++seed) {
    const std::vector<ConfigEntry> plain = {{"lr", "0.1", "default"},
                                            {"seed", std::to_string(seed), "job file"}};
    std::vector<ConfigEntry> lars = plain;
    lars.push_back({"optimizer", "lars", "job file"});
    const double more = 0.02 * seed;
    write_accuracy(folder / fmt::format("base{}.h5", seed), 32, 0.50 + more, plain);
    write_accuracy(folder / fmt::format("none{}.h5", seed), 256, 0.20 + more, plain);
    write_accuracy(folder / fmt::format("lars{}.h5", seed), 256, 0.40 + more, lars);
  }
}

}  // namespace

TEST_CASE("tables: large batch, seeds are repeats with mean, interval, fall and repair") {
  const RunFolder folder;
  write_accuracy_study(folder);
  const RunSet set = loaded_with_failures(folder);
  const Table table = make_large_batch_table(set, {});
  REQUIRE(table.rows.size() == 6);
  const std::size_t base = row_with(table, {{"batch_global", "64"}, {"epoch", "6"}});
  const std::size_t plain =
      row_with(table, {{"batch_global", "512"}, {"remedy", "none"}, {"epoch", "5"}});
  const std::size_t lars = row_with(table, {{"remedy", "optimizer lars"}, {"epoch", "6"}});
  CHECK(shown(table, base, "test_accuracy_percent") == "52.00");
  CHECK(shown(table, base, "test_loss") == "0.4800");
  // t of 2 degrees of freedom, 4.3027, times 2/√3; Welch's 4 degrees, 2.7764, times 2·√(2/3).
  CHECK(shown(table, base, "test_accuracy_low_percent") == "47.03");
  CHECK(shown(table, base, "test_accuracy_high_percent") == "56.97");
  CHECK(shown(table, base, "fall_points") == "n/a");
  CHECK(shown(table, plain, "fall_points") == "-30.00");
  CHECK(shown(table, plain, "fall_reach_points") == "4.53");
  CHECK(shown(table, plain, "repair_points") == "n/a");
  CHECK(shown(table, lars, "fall_points") == "-10.00");
  CHECK(shown(table, lars, "repair_points") == "20.00");
  CHECK(shown(table, lars, "repair_reach_points") == "4.53");
}

TEST_CASE(
    "tables: large batch, the largest batch of a schedule, and runs that differ in no repeat") {
  const RunFolder folder;
  const ConfigEntry plain{"lr", "0.1", "default"};
  write_accuracy(folder / "plain.h5", 32, 0.5, {plain});
  write_accuracy(folder / "growing.h5", 32, 0.4,
                 {plain, {"batch-schedule", "0:64,2:256,4:512", "job file"}});
  write_accuracy(folder / "decay.h5", 32, 0.4, {plain, {"weight-decay", "0.1", "job file"}});
  const RunSet set = loaded_with_failures(folder);
  const Table table = make_large_batch_table(set, {});
  CHECK(table.rows.size() == 6);
  CHECK(row_with(table, {{"batch_global", "512"}, {"remedy", "batch-schedule 0:64,2:256,4:512"}}) <
        table.rows.size());
}

TEST_CASE("tables: large batch, a change of accuracy is that at one epoch of both") {
  const RunFolder folder;
  const auto write = [&](const char* name, std::int64_t batch, std::size_t epochs) {
    const SampleShape shape{"ddp", 2, epochs, 1, batch, 0};
    auto&& recorder = recorder_of(folder / name, sample_info(shape));
    for (std::size_t e = 0; e < epochs; ++e) {
      recorder.add(sample_row(shape, e));
      EpochRow epoch = sample_epoch(shape, e);
      for (RankEpoch& rank : epoch.ranks)
        rank.test_accuracy = 0.1 + 0.01 * static_cast<double>(e) + (batch == 32 ? 0.1 : 0);
      recorder.add(epoch);
    }
    recorder.finish(RunStatus::kComplete);
  };
  write("small.h5", 32, 3);
  write("big.h5", 256, 10);
  write("middle.h5", 64, 2);
  const auto fall = [&](const char* batch, const char* epoch) {
    const Table table = make_large_batch_table(loaded_with_failures(folder), {});
    return shown(table, row_with(table, {{"batch_global", batch}, {"epoch", epoch}}),
                 "fall_points");
  };
  CHECK(fall("128", "2") == "-10.00");  // the base has 22 % after 3 epochs, 21 % after 2
  CHECK(fall("512", "10") == "n/a");    // and no tenth
}

TEST_CASE(
    "tables: large batch, of several plain runs of the smallest batch the first is the base") {
  const RunFolder folder;
  write_accuracy(folder / "a.h5", 32, 0.50, {{"lr", "0.1", "default"}});
  write_accuracy(folder / "b.h5", 32, 0.40, {{"lr", "0.4", "job file"}});
  const Table table = make_large_batch_table(loaded_with_failures(folder), {});
  CHECK(shown(table, row_with(table, {{"run", "a"}}), "remedy") == "none");
  CHECK(shown(table, row_with(table, {{"run", "b"}}), "remedy") == "lr 0.4 (0.1 at batch 64)");
}

TEST_CASE("plots: large batch, a line a remedy through the means, with intervals") {
  const RunFolder folder;
  write_accuracy_study(folder);
  const auto chart = make_large_batch_plot(loaded_with_failures(folder));
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 1);
  const auto& lines = chart->panels[0].series;
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].label == "none");
  REQUIRE(lines[0].points.size() == 2);
  CHECK(lines[0].points[0].x == 64);
  CHECK(lines[0].points[1].y == doctest::Approx(22));
  CHECK(lines[1].label == "optimizer lars");
  CHECK(lines[1].points[0].high == doctest::Approx(46.97).epsilon(1e-4));
  CHECK(contains(chart->caption[0], "epoch 6, mean of n = 3 repeats"));
}

TEST_CASE("plots: large batch needs more than one batch") {
  const RunFolder folder;
  write_accuracy(folder / "one.h5", 32, 0.5, {});
  CHECK_FALSE(make_large_batch_plot(loaded_with_failures(folder)));
}

TEST_CASE("epochs: how many iterations they have, where only the run itself can say") {
  const RunFolder folder;
  const auto whole = [&](const char* name, const SampleShape& shape,
                         const std::vector<ConfigEntry>& options) {
    write_changed(folder / name, shape, options, {});
    return loaded(folder / name);
  };
  CHECK(iterations_of_whole_epoch(whole("one.h5", {"ddp", 2, 5, 5}, {}).runs[0]) == 5);
  CHECK(iterations_of_whole_epoch(whole("none.h5", {"ddp", 2, 4, 5}, {}).runs[0]) == 0);
  // A limit may have cut the only epoch, so that nothing can be extrapolated from it.
  const RunSet set = whole("cut.h5", {"ddp", 2, 5, 5}, {{"iterations", "5", "command line"}});
  const Run& cut = set.runs[0];
  CHECK(iterations_of_whole_epoch(cut) == 0);
  REQUIRE(epoch_figures(cut).size() == 1);
  CHECK_FALSE(epoch_figures(cut)[0].whole);
  CHECK(std::isnan(epoch_figures(cut)[0].extrapolated_s));
}

TEST_CASE("epochs: a batch is full if it holds all images") {
  CHECK(is_full_batch(1, 1));
  CHECK(is_full_batch(8, 5));
  CHECK_FALSE(is_full_batch(4, 5));
  CHECK_FALSE(is_full_batch(4, 0));
}

TEST_CASE("tables: every number of these tables says its formula and its data set") {
  const RunFolder folder;
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded_with_failures(folder);
  for (const auto make : {make_batch_size_table, make_speedup_table, make_compute_comm_table,
                          make_bandwidth_table, make_large_batch_table}) {
    const Table table = make(set, {});
    REQUIRE(table.rows.size() == table.sources.size());
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      CHECK(contains(table.sources[row], "run.h5"));
      for (std::size_t c = 0; c < table.columns.size(); ++c) {
        if (!table.rows[row][c].is_number()) continue;
        CHECK_MESSAGE(!table.columns[c].formula.empty(), table.columns[c].name);
        CHECK(table.columns[c].dataset.starts_with("/"));
      }
    }
  }
}

// --- time to accuracy ----------------------------------------------------------------------------

namespace {

/// Three epochs of 1 iteration of 64 images and 10 s more each than the one before; the test
/// accuracy is 30 % more after each, less 10 % a seed: 30, 60 and 90 % for seed 0.
void write_target(const RunFolder::File& path, int seed, const std::string& target) {
  const SampleShape shape{"ddp", 2, 3, 1, 32, 0};
  RunInfo info = sample_info(shape);
  info.config.push_back({"target-accuracy", target, "command line"});
  info.config.push_back({"seed", std::to_string(seed), "job file"});
  auto&& recorder = recorder_of(path, info);
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    recorder.add(sample_row(shape, i));
    EpochRow epoch = sample_epoch(shape, i);
    for (RankEpoch& rank : epoch.ranks) {
      rank.running_time_s = 10.0 * static_cast<double>(i + 1);
      rank.test_accuracy = 0.3 * static_cast<double>(i + 1) - 0.1 * seed;
    }
    recorder.add(epoch);
  }
  recorder.finish(RunStatus::kComplete);
}

}  // namespace

TEST_CASE("tables: time and images to an accuracy, with their interval over seeds") {
  const RunFolder folder;
  write_target(folder / "a.h5", 0, "60");  // 30, 60 %: two epochs, 10 + 20 s, 128 images
  write_target(folder / "b.h5", 1, "60");  // 20, 50, 80 %: three, 60 s, 192 images
  const Table table = make_time_to_accuracy_table(loaded_with_failures(folder), {});
  REQUIRE(table.rows.size() == 1);
  CHECK(number(table, 0, "target_percent") == 60);
  CHECK(number(table, 0, "runs") == 2);
  CHECK(number(table, 0, "reached") == 2);
  CHECK(number(table, 0, "epochs") == doctest::Approx(2.5));
  CHECK(number(table, 0, "time_s") == doctest::Approx(45));
  CHECK(number(table, 0, "images") == doctest::Approx(160));
  // Student's t(1) = 12.706, deviation 30/sqrt(2), n = 2.
  CHECK(number(table, 0, "time_high_s") == doctest::Approx(45 + 12.7062 * 15).epsilon(1e-4));
  CHECK(number(table, 0, "images_low") == doctest::Approx(160 - 12.7062 * 32).epsilon(1e-4));
}

TEST_CASE(
    "tables: time to an accuracy that the report is asked for, of runs without a target or with "
    "another") {
  const RunFolder folder;
  write_target(folder / "a.h5", 0, "0");   // 30, 60 %
  write_target(folder / "b.h5", 1, "80");  // 20, 50, 80 %
  const RunSet set = loaded_with_failures(folder);
  TableOptions options;
  options.target_percent = 45;
  CHECK(has_target_accuracy(set, options));
  const Table table = make_time_to_accuracy_table(set, options);
  REQUIRE(table.rows.size() == 1);
  CHECK(number(table, 0, "target_percent") == 45);
  CHECK(number(table, 0, "reached") == 2);
  CHECK(number(table, 0, "time_s") == doctest::Approx(30));  // 10 + 20 s, both
}

TEST_CASE("tables: time to an accuracy that a seed does not reach, or that no run has") {
  const RunFolder folder;
  write_target(folder / "a.h5", 0, "85");
  write_target(folder / "b.h5", 1, "85");  // ends at 80 %
  const RunSet set = loaded_with_failures(folder);
  CHECK(has_target_accuracy(set, {}));
  const Table table = make_time_to_accuracy_table(set, {});
  CHECK(number(table, 0, "runs") == 2);
  CHECK(number(table, 0, "reached") == 1);
  CHECK(number(table, 0, "time_s") == doctest::Approx(60));
  CHECK(shown(table, 0, "time_low_s") == "n/a");
  const RunFolder plain;
  write_target(plain / "a.h5", 0, "0");
  CHECK_FALSE(has_target_accuracy(loaded_with_failures(plain), {}));
}
