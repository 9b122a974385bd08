// The tables of a scaling study, on runs whose times are known: an iteration i of rank r takes
// 10 + 0.1·i + r ms (sample_run.h), so its slowest rank of n takes 10 + 0.1·i + (n − 1) ms.

#include <algorithm>

#include <doctest/doctest.h>

#include "analysis/metrics/collective_figures.h"
#include "analysis/metrics/comparisons.h"
#include "analysis/metrics/epoch_figures.h"
#include "analysis/metrics/remedy.h"
#include "analysis/tables/tables.h"
#include "expect_error.h"
#include "report_view.h"
#include "sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

RunSet loaded_with_failures(const TestFolder& folder) {
  return load_places({folder.path().string()});
}

double number(const Table& table, std::size_t row, const std::string& column) {
  return table.rows.at(row)[column_of(table, column)].number;
}

/// The first row in which each column shows what is asked for.
std::size_t row_with(const Table& table,
                     const std::vector<std::pair<std::string, std::string>>& wanted) {
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    if (std::all_of(wanted.begin(), wanted.end(),
                    [&](const auto& one) { return shown(table, row, one.first) == one.second; }))
      return row;
  FAIL("no such row");
  return 0;
}

using Change = void (*)(IterationRow&);
void nothing(IterationRow&) {}

/// A sample with further options and provenance, and each iteration changed.
void write_changed(const std::filesystem::path& path, const SampleShape& shape,
                   const std::vector<ConfigEntry>& options,
                   const std::vector<NamedText>& provenance, Change change = nothing,
                   const std::vector<CalibrationRow>& calibration = {}) {
  RunInfo info = sample_info(shape);
  info.config.insert(info.config.end(), options.begin(), options.end());
  info.provenance.insert(info.provenance.end(), provenance.begin(), provenance.end());
  Recorder recorder(path, info);
  for (const CalibrationRow& row : calibration)
    recorder.add(row);
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    change(row);
    recorder.add(row);
    if ((i + 1) % shape.per_epoch == 0) recorder.add(sample_epoch(shape, i / shape.per_epoch));
  }
  recorder.finish(RunStatus::kComplete);
}

void four_times_slower(IterationRow& row) {
  for (RankIteration& rank : row.ranks)
    for (double& time_s : rank.time_s)
      time_s *= 4;
}

std::string notes_of(const Table& table) {
  std::string text;
  for (const std::string& note : table.notes)
    text += note + "\n";
  return text;
}

}  // namespace

TEST_CASE("tables: iterations of an epoch follow the sampler") {
  CHECK(iterations_by_rule(50000, 4, 64, 1, true) == 196);  // 12,500 / 64 = 195.3
  CHECK(iterations_by_rule(50000, 4, 64, 1, false) == 195);
  CHECK(iterations_by_rule(50000, 4, 64, 2, true) == 98);
  CHECK(iterations_by_rule(50000, 3, 128, 1, true) == 131);  // 16,667 / 128 = 130.2
  CHECK(iterations_by_rule(50000, 1, 65536, 1, true) == 1);
  CHECK(iterations_by_rule(50000, 1, 65536, 1, false) == 0);
  CHECK(is_full_batch(50000, 50000));
  CHECK_FALSE(is_full_batch(49999, 50000));
  CHECK_FALSE(is_full_batch(64, 0));  // not known
}

TEST_CASE("tables: epochs, whole and cut off") {
  const TestFolder folder;
  // 640 images over 2 ranks of 32: 10 iterations a whole epoch, of which the sample has 5.
  write_changed(folder / "cut.h5", {}, {{"iterations", "12", "command line"}},
                {{"train_images", "640"}});
  const RunSet set = loaded_with_failures(folder);
  const auto epochs = epoch_figures(set.runs[0]);
  REQUIRE(epochs.size() == 2);
  CHECK_FALSE(epochs[0].whole);
  CHECK(epochs[0].samples == 320);
  CHECK(epochs[0].running_s == 0.0625);
  CHECK(epochs[0].images_per_s() == Approx(5120));
  // Iterations 2, 3, 4 are not warm-up: mean 10 + 0.3 + 1 ms.
  CHECK(epochs[0].extrapolated_s == Approx(0.113));
  CHECK(epochs[1].extrapolated_s == Approx(0.117));
  const Table table = make_batch_size_table(set, {});
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 0, "running_s") == "0.06250");  // nothing scaled
  CHECK(shown(table, 0, "extrapolated_s") == "0.1130");
  CHECK(contains(shown(table, 0, "remark"), "cut off: time of 5 of 10 iterations"));
  CHECK(contains(shown(table, 0, "remark"), "first epoch: warm-up"));
  CHECK(shown(table, 1, "train_accuracy_percent") == "38.00");  // 0.25 + 0.125 + 0.01·½
}

TEST_CASE("tables: batch-size keeps the first epoch apart and flags a full batch") {
  const TestFolder folder;
  write_changed(folder / "a.h5", {"ddp", 2, 20, 5, 32, 1}, {}, {{"train_images", "320"}});
  write_changed(folder / "b.h5", {"ddp", 2, 3, 1, 512, 1}, {}, {{"train_images", "320"}});
  const Table table = make_batch_size_table(loaded_with_failures(folder), {});
  const std::size_t later = row_with(table, {{"run", "a"}, {"epoch", "mean 2-4"}});
  CHECK(number(table, later, "running_s") == 0.0625);
  CHECK(shown(table, later, "train_loss") == "-");
  CHECK(shown(table, row_with(table, {{"run", "a"}, {"epoch", "1"}}), "remark") ==
        "first epoch: warm-up");
  const std::size_t full = row_with(table, {{"run", "b"}, {"epoch", "2"}});
  CHECK(contains(shown(table, full, "remark"), "full batch: one step over all 320 images"));
}

TEST_CASE("tables: a cell that ran out of memory is a row that says so") {
  const TestFolder folder;
  write_sample(folder / "lenet-ddp-r2.h5", {"ddp", 2});
  write_plainly(folder / "grid.json",
                R"({"schema":"gradsync-grid/1","cells":[{"name":"big","ranks":2,"repeat":1,
                   "options":{"sync":"ddp","model":"lenet","batch-per-rank":"8192"}}]})");
  write_plainly(folder / "big.failed.json",
                R"({"cell":"big","exit_code":81,"message":"out of memory on rank 1\nfix: less"})");
  write_plainly(folder / "odd.failed.json", R"({"exit_code":86,"message":"hang"})");
  write_plainly(folder / "bad.failed.json", "{\"exit_code\": 81, \"mess");
  write_plainly(folder / "skip.failed.json",
                R"({"kind":"not run","exit_code":-1,"message":"not run: batch 8 is too large"})");
  write_plainly(folder / "slain.failed.json",
                R"({"kind":"out of memory","exit_code":137,"message":"killed"})");
  const RunSet set = loaded_with_failures(folder);
  REQUIRE(set.failed.size() == 4);
  CHECK(set.failed[0].out_of_memory());
  CHECK(set.failed[0].batch_global == 16384);
  CHECK(set.failed[0].message == "out of memory on rank 1");
  REQUIRE(set.remarks.size() == 1);
  CHECK(contains(set.remarks[0], "bad.failed.json"));
  const Table table = make_batch_size_table(set, {});
  const std::size_t row = row_with(table, {{"batch_per_rank", "8192"}});
  CHECK(shown(table, row, "remark") == "OUT OF MEMORY (exit code 81)");
  CHECK(shown(table, row, "running_s") == "n/a");
  CHECK(shown(table, row, "mode") == "ddp");
  CHECK(row == row_with(table, {{"batch_per_rank", "32"}, {"epoch", "2"}}) + 1);  // in its place
  const std::size_t odd = row_with(table, {{"run", "odd"}});
  CHECK(shown(table, odd, "mode") == "?");
  CHECK(shown(table, odd, "remark") == "FAILED (exit code 86): hang");
  const auto remark_of = [&](const char* cell) {
    return shown(table, row_with(table, {{"run", cell}}), "remark");
  };
  CHECK(remark_of("skip") == "not run: batch 8 is too large");
  CHECK(remark_of("slain") == "OUT OF MEMORY (exit code 137)");
}

TEST_CASE("tables: a folder of failed cells only says how each of them failed") {
  const TestFolder folder;
  write_plainly(folder / "big.failed.json", R"({"exit_code":81,"message":"out of memory"})");
  write_plainly(folder / "odd.failed.json", R"({"exit_code":86,"message":"hang on rank 3"})");
  const auto refuse = [](const std::filesystem::path& place) {
    return error_text(ExitCode::kBadData, [&] { load_places({place.string()}); });
  };
  const std::string text = refuse(folder.path());
  CHECK(contains(text, "all 2 cells failed and left no run"));
  CHECK(contains(text, "big: OUT OF MEMORY (exit code 81)"));
  CHECK(contains(text, "odd: FAILED (exit code 86): hang on rank 3"));
  CHECK(contains(refuse(folder / "odd.failed.json"), "the only cell failed"));
  for (int i = 0; i < 40; ++i)
    write_plainly(folder / ("c" + std::to_string(i) + ".failed.json"), R"({"exit_code":69})");
  CHECK(contains(refuse(folder.path()), "and 22 more"));
  const TestFolder empty;
  error_text(ExitCode::kNoInput, [&] { load_places({empty.path().string()}); });
}

TEST_CASE("tables: damaged records of failures never crash") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const std::vector<std::string> texts = {"",
                                          "[]",
                                          "7",
                                          "{}",
                                          R"({"exit_code":"x"})",
                                          R"({"exit_code":1e99})",
                                          R"({"exit_code":81,"message":7})"};
  for (std::size_t i = 0; i < texts.size(); ++i)
    write_plainly(folder / ("c" + std::to_string(i) + ".failed.json"), texts[i]);
  for (const char* grid : {"", "[]", "{\"cells\":7}", "{\"cells\":[7,{\"name\":1}]}",
                           R"({"cells":[{"name":"c3","ranks":-5,"options":7}]})",
                           R"({"cells":[{"name":"c3","ranks":9223372036854775807,
                              "options":{"batch-per-rank":"9223372036854775807",
                              "accumulate":"99999999999"}}]})"}) {
    write_plainly(folder / "grid.json", grid);
    CHECK(make_batch_size_table(loaded_with_failures(folder), {}).rows.size() == 6);
  }
}

TEST_CASE("tables: strong and weak scaling are told from the runs") {
  const TestFolder folder;
  write_sample(folder / "one.h5", {"none", 1, 12, 5, 64, 2});
  write_sample(folder / "strong.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "weak.h5", {"ddp", 2, 12, 5, 64, 2});
  write_sample(folder / "mode.h5", {"ddp", 1, 12, 5, 64, 2});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  const auto row = [&](const char* run, const char* base) {
    return row_with(table, {{"run", run}, {"base", base}, {"basis", "iteration"}});
  };
  const std::size_t strong = row("strong", "1 rank none, batch 64 per rank");
  CHECK(shown(table, strong, "scaling") == "strong");
  CHECK(number(table, strong, "speedup") == Approx(10.65 / 11.65));
  CHECK(number(table, strong, "efficiency_percent") == Approx(50 * 10.65 / 11.65));
  CHECK(shown(table, strong, "weak_speedup") == "n/a");
  const std::size_t weak = row("weak", "1 rank none, batch 64 per rank");
  CHECK(shown(table, weak, "scaling") == "weak");
  CHECK(number(table, weak, "efficiency_percent") == Approx(100 * 10.65 / 11.65));
  CHECK(number(table, weak, "weak_speedup") == Approx(2 * 10.65 / 11.65));
  CHECK(shown(table, row("weak", "1 rank ddp, batch 64 per rank"), "scaling") == "weak");
  CHECK(shown(table, row("one", "1 rank none, batch 64 per rank"), "remark") == "the base itself");
  // The interval holds the ratio and is made from the sample.
  CHECK(number(table, strong, "speedup_low") <= 10.65 / 11.65);
  CHECK(number(table, strong, "speedup_high") >= 10.65 / 11.65);
  // Two epochs were recorded of each: the second one counts.
  const std::size_t running = row_with(
      table,
      {{"run", "weak"}, {"basis", "running time"}, {"base", "1 rank none, batch 64 per rank"}});
  CHECK(shown(table, running, "count") == "1");
  CHECK(number(table, running, "speedup") == 1);
  CHECK(number(table, running, "efficiency_percent") == 50);
  CHECK(shown(table, running, "weak_speedup") == "n/a");
}

TEST_CASE("tables: super-linear speedup is flagged, a missing base is said") {
  const TestFolder folder;
  write_changed(folder / "one.h5", {"none", 1, 12, 5, 64, 2}, {}, {}, four_times_slower);
  write_sample(folder / "two.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "alone.h5", {"ddp", 2, 12, 5, 48, 2});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  const std::size_t two = row_with(table, {{"run", "two"}, {"basis", "iteration"}});
  CHECK(number(table, two, "efficiency_percent") == Approx(200 * 10.65 / 11.65));
  CHECK(contains(shown(table, two, "remark"), "SUPER-LINEAR"));
  CHECK(contains(notes_of(table), "Likely causes"));
  const std::size_t alone = row_with(table, {{"run", "alone"}});
  CHECK(shown(table, alone, "base") == "none");
  CHECK(shown(table, alone, "speedup") == "n/a");
}

TEST_CASE("tables: a base with other threads, precision or data") {
  const TestFolder folder;
  const SampleShape one{"none", 1, 12, 5, 64, 2}, two{"ddp", 2, 12, 5, 32, 2};
  write_changed(folder / "one.h5", one, {{"threads", "2", "default"}}, {});
  write_changed(folder / "two.h5", two, {{"threads", "1", "default"}}, {});
  write_changed(folder / "half.h5", two,
                {{"precision", "bf16", "command line"}, {"lr", "1", "default"}}, {});
  write_changed(folder / "other.h5", two, {{"lr", "2", "default"}}, {{"train_images", "320"}});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  CHECK(shown(table, row_with(table, {{"run", "two"}}), "remark") ==
        "threads 2 in the base, 1 here");
  CHECK(shown(table, row_with(table, {{"run", "half"}}), "base") == "none");
  CHECK(shown(table, row_with(table, {{"run", "other"}}), "base") == "none");
}

TEST_CASE("tables: compute and communication, measured beside derived") {
  const TestFolder folder;
  write_sample(folder / "one.h5", {"none", 1, 12, 5, 64, 2});
  write_sample(folder / "strong.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "weak.h5", {"ddp", 2, 12, 5, 64, 2});
  const Table table = make_compute_comm_table(loaded_with_failures(folder), {});
  const std::size_t strong = row_with(table, {{"run", "strong"}});
  CHECK(shown(table, strong, "iteration_ms") == "11.15");  // mean of 10.65 and 11.65
  CHECK(shown(table, strong, "measured_compute_ms") == "6.00");
  CHECK(shown(table, strong, "measured_hidden_ms") == "2.00");
  CHECK(shown(table, strong, "measured_exposed_ms") == "1.00");
  CHECK(shown(table, strong, "measured_wait_ms") == "0.25");
  CHECK(shown(table, strong, "measured_sum_percent") == "100.0");
  CHECK(number(table, strong, "derived_base_ms") == Approx(10.65));
  CHECK(number(table, strong, "derived_compute_ms") == Approx(5.325));
  CHECK(number(table, strong, "derived_communication_ms") == Approx(5.825));
  // Twice the images of the base: T(1) is 21.3 ms.
  const std::size_t weak = row_with(table, {{"run", "weak"}});
  CHECK(number(table, weak, "derived_compute_ms") == Approx(10.65));
  CHECK(number(table, weak, "derived_communication_ms") == Approx(0.5));
  CHECK(contains(shown(table, weak, "derived_base"), "(weak)"));
  CHECK_FALSE(contains(notes_of(table), "negative"));
}

TEST_CASE("tables: negative derived communication is shown and explained") {
  const TestFolder folder;
  write_changed(folder / "one.h5", {"none", 1, 12, 5, 64, 2}, {}, {}, four_times_slower);
  write_sample(folder / "two.h5", {"ddp", 2, 12, 5, 32, 2});
  const Table table = make_compute_comm_table(loaded_with_failures(folder), {});
  const std::size_t two = row_with(table, {{"run", "two"}});
  CHECK(shown(table, two, "derived_communication_ms") == "-10.15");  // 11.15 − 42.6/2
  CHECK(contains(shown(table, two, "remark"), "NEGATIVE"));
  CHECK(contains(notes_of(table), "negative derived communication is shown as it is"));
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
  CHECK(number(table, 0, "utilisation_at_size_percent") == Approx(50));
  CHECK(number(table, 0, "fitted_ms") == Approx(0.45));
  // 10 iterations an epoch, 3 ms of comm busy each.
  CHECK(shown(table, 0, "epoch_iterations") == "10");
  CHECK(number(table, 0, "busbw_measured_gb_per_s") == Approx(4096 / 0.003 / 1e9));
  CHECK(number(table, 0, "message_measured_gb_per_s") == Approx(4096 / 0.03 / 1e9));
  CHECK(number(table, 0, "ring_epoch_measured_gib_per_s") == Approx(4096 / 0.03 / 1073741824));
  CHECK(number(table, 0, "total_volume_measured_gb_per_s") == Approx(2 * 40960 / 0.03 / 1e9));
  CHECK(shown(table, 0, "busbw_derived_gb_per_s") == "n/a");       // no base
  CHECK(shown(table, 1, "utilisation_at_size_percent") == "n/a");  // not calibrated
  CHECK(shown(table, 1, "busbw_measured_gb_per_s") == "n/a");
  options.link_bytes_per_s = 1e6;
  const Table linked = make_bandwidth_table(loaded_with_failures(folder), options);
  CHECK(number(linked, 0, "tree_ms") == Approx(4.096));
  CHECK(number(linked, 0, "ring_ms") == Approx(4.096));
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
  CHECK(shown(table, two, "utilisation_of_plateau_percent") == "n/a");
  CHECK(shown(table, two, "remark") == "no calibration in the run");
  CHECK(contains(notes_of(table), "gradsync-train --calibrate"));
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

TEST_CASE("tables: large batch, the remedy and the epoch") {
  const TestFolder folder;
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
        "lr 0.8 (0.1 at batch 64), warmup-epochs 5, accumulate 4");
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

TEST_CASE("tables: every number of these tables says its formula and its data set") {
  const TestFolder folder;
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
