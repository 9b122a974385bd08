
#include <doctest/doctest.h>

#include "analysis/read/run_set.h"
#include "analysis/tables/tables.h"
#include "base/table.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

TEST_CASE("report: runs are found, told apart and sorted") {
  const TestFolder folder;
  std::filesystem::create_directories(folder / "deep/er");
  write_sample(folder / "deep/er/z.h5", {"none", 1, 3, 5, 64, 1});
  write_sample(folder / "a.h5", {"c10d", 2});
  write_sample(folder / "b.h5", {"ddp", 2});
  write_sample(folder / "c.h5", {"gather-scatter", 2});
  write_sample(folder / "d.h5", {"my-mode", 2});
  write_plainly(folder / "b.h5.journal", "left behind beside its finished file");
  write_plainly(folder / "notes.txt", "no run");
  {
    Recorder recorder(folder / "e.h5", sample_info({"allreduce", 2}));
    recorder.add(sample_row({"allreduce", 2}, 0));
    recorder.sync();
  }
  const RunSet set = loaded(folder);
  REQUIRE(set.runs.size() == 6);
  std::string order;
  for (const Run& run : set.runs)
    order += run.name + " ";
  CHECK(order == "z c e b a d ");
  CHECK(set.runs[0].ranks == 1);
  CHECK(set.runs[0].batch_per_rank == 64);
  CHECK(set.runs[1].batch_global == 64);
  REQUIRE(set.remarks.size() == 1);
  CHECK(contains(set.remarks[0], "status running, 1 iterations"));
}

TEST_CASE("report: the same file by two names counts once") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {});
  const auto file = (folder / "a.h5").string();
  const auto found = find_runs({file, folder.path().string(), folder.path().string() + "/./a.h5"});
  CHECK(found.size() == 1);
  CHECK(found[0].named);
}

TEST_CASE("report: what cannot be read is an error if named and a remark if found") {
  const TestFolder folder;
  CHECK(contains(
      error_text(ExitCode::kNoInput, [&] { find_runs({(folder / "missing.h5").string()}); }),
      "missing.h5"));
  CHECK(contains(error_text(ExitCode::kNoInput, [&] { loaded(folder); }), "no run was found"));
  write_plainly(folder / "other.h5", "not a run");
  CHECK(contains(error_text(ExitCode::kBadData, [&] { loaded(folder); }), "other.h5"));
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded(folder);
  CHECK(set.runs.size() == 1);
  REQUIRE(set.remarks.size() == 1);
  CHECK(contains(set.remarks[0], "left out: "));
  error_text(ExitCode::kBadData, [&] { load_runs(find_runs({(folder / "other.h5").string()})); });
}

TEST_CASE("report: table modes") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded(folder);
  const Table table = make_modes_table(set, {5});
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 1, "mode") == "ddp");
  CHECK(shown(table, 1, "model") == "lenet");
  CHECK(shown(table, 1, "ranks") == "2");
  CHECK(shown(table, 1, "rank") == "1");
  CHECK(shown(table, 1, "batch_per_rank") == "32");
  CHECK(shown(table, 1, "batch_global") == "64");
  CHECK(shown(table, 1, "status") == "complete");
  CHECK(shown(table, 1, "iterations") == "12");
  CHECK(shown(table, 0, "loss_at_5") == "1.8831");   // 2.3·exp(−0.2)
  CHECK(shown(table, 0, "loss_at_10") == "1.4665");  // 2.3·exp(−0.45)
  CHECK(shown(table, 1, "train_accuracy_percent") == "20.31");
  CHECK(shown(table, 1, "test_accuracy_percent") == "50.00");
  CHECK(shown(table, 1, "iteration_mean_ms") == "11.60");
  CHECK(shown(table, 1, "iteration_median_ms") == "11.65");
  // Rank 1, i = 2 … 11: ranks 2 and 9 of 10 bound the median, sd 0.1·√(82.5/9) of mean 11.65.
  CHECK(shown(table, 1, "steady_iterations") == "10");
  CHECK(shown(table, 1, "iteration_median_low_ms") == "11.30");
  CHECK(shown(table, 1, "iteration_median_high_ms") == "12.00");
  CHECK(shown(table, 1, "iteration_p99_ms") == "12.09");
  CHECK(shown(table, 1, "iteration_deviation_ms") == "0.30");
  CHECK(shown(table, 1, "iteration_variation_percent") == "2.6");
  CHECK(shown(table, 0, "images_per_s") == "6037.7");
  CHECK(shown(table, 0, "run") == "run");
  CHECK(contains(all_notes(table), "steady iterations, left out: 2 per run by rule"));
}

TEST_CASE("report: at most ten loss columns, which a note states") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const Table table = make_modes_table(loaded(folder), {1});
  std::size_t columns = 0;
  for (const Column& column : table.columns)
    columns += column.name.starts_with("loss_at_") ? 1 : 0;
  CHECK(columns == 6);
  CHECK(contains(all_notes(table), "every 2 instead of every 1, for at most 10 columns"));
}

TEST_CASE("report: table split") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const Table table = make_split_table(loaded(folder), {});
  REQUIRE(table.rows.size() == 3);
  CHECK(shown(table, 0, "rank") == "0");
  CHECK(shown(table, 2, "rank") == "mean");
  CHECK(shown(table, 0, "iterations") == "10");
  CHECK(shown(table, 0, "iteration_ms") == "10.65");
  CHECK(shown(table, 0, "compute_ms") == "6.00");
  CHECK(shown(table, 0, "compute_percent") == "56.3");
  CHECK(shown(table, 0, "hidden_ms") == "2.00");
  CHECK(shown(table, 0, "exposed_percent") == "9.4");
  CHECK(shown(table, 0, "wait_ms") == "n/a");
  CHECK(shown(table, 1, "wait_ms") == "n/a");  // measured, but as a part of communication
  CHECK(shown(table, 2, "iteration_ms") == "11.15");
  CHECK(contains(all_notes(table), "compute + exposed + other = iteration, checked to 1 %"));
  CHECK(contains(all_notes(table), "left out as warm-up: 2 per run"));
}

TEST_CASE("report: parts that do not sum to the iteration are announced") {
  const TestFolder folder;
  const SampleShape shape;
  Recorder recorder(folder / "run.h5", sample_info(shape));
  for (std::size_t i = 0; i < 4; ++i) {
    IterationRow row = sample_row(shape, i);
    row.ranks[1][Phase::kCompute] *= 1.5;
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
  CHECK(contains(all_notes(make_split_table(loaded(folder), {})), "WARNING: compute + exposed"));
}

namespace {

/// Also where nothing of it was measured.
bool always_has_rows(const TableSpec& spec) {
  return spec.name == "energy" || spec.name == "hardware";
}

}  // namespace

TEST_CASE("report: tables of no row, one row and NaN everywhere, in all formats") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {"none", 1, 0, 5, 32, 2});
  write_sample(folder / "b.h5", {"none", 1, 1, 5, 32, 0});
  write_unmeasured(folder / "c.h5", 30);
  const RunSet set = loaded(folder);
  for (const TableSpec& spec : tables()) {
    const Table table = spec.make(set, {});
    CAPTURE(spec.name);
    // These runs count no traffic in all, and are too few for a prediction.
    const bool empty = spec.name == "traffic-total" || spec.name == "prediction";
    const bool of_others = spec.of_quantized || spec.needs != nullptr;
    CHECK(table.rows.empty() == ((of_others && !always_has_rows(spec)) || empty));
    CHECK(spec.applies(set, {}) == !of_others);
    for (const FormatSpec& format : formats()) {
      const std::string text = format.render(table, false);
      CHECK_FALSE(contains(text, "nan"));
      CHECK_FALSE(contains(text, "inf"));
    }
  }
  const Table modes = make_modes_table(set, {});
  CHECK(shown(modes, 0, "iteration_mean_ms") == "n/a");
  CHECK(shown(modes, 1, "iteration_mean_ms") == "n/a");
  CHECK(shown(modes, 1, "iteration_median_ms") == "n/a");
  CHECK(shown(modes, 2, "loss_at_20") == "n/a");
  CHECK(shown(modes, 2, "loss_mean") == "n/a");
}

TEST_CASE("report: a run without its options is shown with unknowns") {
  const TestFolder folder;
  RunInfo info = sample_info({});
  info.config.clear();
  {
    Recorder recorder(folder / "run.h5", info);
    recorder.finish(RunStatus::kPartial);
  }
  const Table table = printed("modes", loaded(folder));
  CHECK(shown(table, 0, "mode") == "?");
  CHECK(shown(table, 0, "batch_per_rank") == "n/a");
  CHECK(shown(table, 0, "status") == "partial");
  CHECK(contains(all_notes(table), "status partial"));
}
