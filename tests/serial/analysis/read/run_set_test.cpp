// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/run_set.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/study.h"
#include "analysis/model/what_if.h"
#include "analysis/output/claims.h"
#include "analysis/plots/plots.h"
#include "analysis/tables/tables.h"
#include "base/table.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

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
  // What a sweep set aside of a run that it started again.
  std::filesystem::copy_file(folder / "e.h5.journal", folder / "e.interrupted-1.journal");
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
  CHECK(contains(set.remarks[0], "status running, 1 iteration"));
}

TEST_CASE("report: the same file by two names counts once") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {});
  const auto file = (folder / "a.h5").string();
  const auto found = find_runs({file, folder.path().string(), folder.path().string() + "/./a.h5"});
  CHECK(found.size() == 1);
  CHECK(found[0].named);
}

TEST_CASE("report: of copies of a run the longest counts, and the others are named") {
  const TestFolder folder;
  const auto begun = folder / "begun.h5.journal";
  {
    Recorder recorder(folder / "run.h5", sample_info({}));
    recorder.add(sample_row({}, 0));
    recorder.sync();
    std::filesystem::copy_file(folder / "run.h5.journal", begun);
    recorder.add(sample_row({}, 1));
    recorder.finish(RunStatus::kComplete);
  }
  std::filesystem::copy_file(folder / "run.h5", folder / "same.h5");
  write_sample(folder / "again.h5", {});
  const RunSet set = loaded(folder);
  REQUIRE(set.runs.size() == 2);
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].repeats.size() == 2);
  for (const Run& run : set.runs)
    CHECK(run.reader->iterations() > 1);
  const std::string remarks = fmt::format("{}", fmt::join(set.remarks, "\n"));
  CHECK(contains(remarks, "same.h5 holds the same run as "));
  CHECK(contains(remarks, "begun.h5.journal holds the same run as "));
}

TEST_CASE("report: a hidden site leaves two files of one name two, for all that is read of them") {
  const TestFolder folder;
  for (const char* model : {"/home/a/net.pt", "/home/b/net.pt"})
    write_study(folder / fmt::format("{}.h5", model[6]), of_network({}, model));
  std::ofstream(folder / "grid.json")
      << R"({"schema":"gradsync-grid/1","cells":[{"name":"big","ranks":2,"repeat":1,
             "options":{"sync":"ddp","model":"/home/b/net.pt","batch-per-rank":"8192"}}]})";
  std::ofstream(folder / "big.failed.json") << R"({"cell":"big","exit_code":81,"message":"no"})";
  const RunSet set = load_places({folder.path().string()}, {}, {}, {}, /*hide_sites=*/true);
  REQUIRE(set.failed.size() == 1);
  CHECK(set.failed[0].model == "net.pt #2");
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].first().model == "net.pt");
  CHECK(groups[1].first().model == "net.pt #2");
}

TEST_CASE("report: a run of traces that was saved into a folder of runs counts once") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  CHECK(load_places({folder.path().string()}, {}, {{folder / "run.h5", true}}).runs.size() == 1);
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
  const RunSet set = loaded(folder);
  const Table table = printed("modes", set);
  CHECK(shown(table, 0, "mode") == "?");
  CHECK(shown(table, 0, "batch_per_rank") == "n/a");
  CHECK(shown(table, 0, "status") == "partial");
  CHECK(contains(set.remarks.at(0), "status partial"));
}

namespace {

/// t = 50 us + S · 1 ns, of both transports.
std::vector<CalibrationRow> line(double factor) {
  std::vector<CalibrationRow> rows;
  for (const char* transport : {"mpi", "mpi-ring"})
    for (const std::int64_t bytes : {1 << 10, 1 << 16, 1 << 20, 4 << 20}) {
      CalibrationRow row;
      row.transport = transport;
      row.cadence = "isolated";
      row.bytes = bytes;
      row.repetitions = 9;
      row.median_s = factor * (50e-6 + static_cast<double>(bytes) * 1e-9);
      rows.push_back(row);
    }
  return rows;
}

struct CalibrationShape {
  std::size_t ranks = 2;
  std::string host = "node0";
  std::string created = "2026-01-02T03:04:05Z";
  double factor = 1;  ///< of the times
};

/// As gradsync-calibrate --output writes it: no iterations, no mode.
void write_calibration(const std::filesystem::path& path, const CalibrationShape& shape) {
  RunInfo info = sample_info({"", shape.ranks});
  info.run_id += " in " + path.string();
  info.config = {{"iters", "9", "default"}};
  info.created = shape.created;
  for (RankPlace& place : info.topology)
    place.host = shape.host;
  Recorder recorder(path, info);
  for (const CalibrationRow& row : line(shape.factor))
    recorder.add(row);
  recorder.finish(RunStatus::kComplete);
}

StudyRun run_on(std::size_t ranks) {
  return law_run(LawWorld(), ranks, 32);
}

std::string all_remarks(const RunSet& set) {
  std::string text;
  for (const std::string& remark : set.remarks)
    text += remark + "\n";
  return text;
}

LawEntry allreduce_law(const RunStudy& runs) {
  const std::vector<StudyCell>& study = runs.cells();
  return fit_family(families(study).at(0), calibration_of(study))
      .laws.at(CollectiveKind::kAllReduce);
}

}  // namespace

TEST_CASE(
    "calibration file: a calibration file of the same ranks and hosts stands in for a run's own") {
  const TestFolder folder;
  write_study(folder / "run.h5", run_on(2));
  write_calibration(folder / "link.h5", {});
  const RunSet set = loaded(folder);
  REQUIRE(set.runs.size() == 1);  // the calibration is no run
  CHECK(all_remarks(set) == "");
  const std::string file = (folder / "link.h5").string();
  const Table table = make_bandwidth_table(set, {});
  // Calibrated: 4 messages of 7 MiB in all; measured: 100 us + S ns, at the same sizes.
  const double bytes = 7 << 20, measured_s = 4 * 200e-6 + bytes * 1e-9;
  CHECK(table.rows[0][column_of(table, "fitted_ms")].number ==
        Approx(1e3 * (4 * 50e-6 + bytes * 1e-9)));
  CHECK(table.rows[0][column_of(table, "utilization_at_size_percent")].number > 80);
  CHECK(table.rows[0][column_of(table, "transfer_ms")].number == Approx(1e3 * measured_s));
  CHECK(contains(shown(table, 0, "remark"), "calibrated apart, by " + file));
  CHECK(contains(table.sources[0], file));
  CHECK(claimed_files(set).size() == 2);

  const LawEntry law = allreduce_law(set);
  CHECK(law.calibrated);
  CHECK(law.source == "calibration (mpi-ring, isolated; " + file + ")");
  CHECK(law.points.size() == 4);
  const Table fit = make_model_fit_table(set, {});
  CHECK(contains(shown(fit, 0, "source"), file));
  CHECK(contains(fit.sources[0], file));
  CHECK(make_busbw_plot(set));
}

TEST_CASE(
    "calibration file: calibration of other hosts or ranks is never mixed in, and the report says "
    "why") {
  const TestFolder folder;
  write_study(folder / "run.h5", run_on(2));
  write_calibration(folder / "other.h5", {2, "node7"});
  write_calibration(folder / "wide.h5", {4});
  const RunSet set = loaded(folder);
  REQUIRE(set.runs.size() == 1);
  CHECK(contains(all_remarks(set),
                 "other.h5 is not used: hosts: node0 in the run, node7 in the calibration"));
  CHECK(
      contains(all_remarks(set), "wide.h5 is not used: ranks: 2 in the run, 4 in the calibration"));
  const Table table = printed("bandwidth", set);
  CHECK(shown(table, 0, "fitted_ms") == "n/a");
  CHECK(contains(shown(table, 0, "remark"), "no calibration in the run"));
  CHECK_FALSE(allreduce_law(set).calibrated);
  CHECK_FALSE(make_busbw_plot(set));
}

TEST_CASE("calibration file: a family on other hosts does not take the file of its neighbor") {
  const TestFolder folder;
  write_study(folder / "near.h5", run_on(2));
  RunInfo info = study_info(run_on(2));
  info.config[0].value = "allreduce";
  for (RankPlace& place : info.topology)
    place.host = "node7";
  {
    Recorder recorder(folder / "far.h5", info);
    for (std::size_t i = 0; i < 12; ++i)
      recorder.add(study_row(run_on(2), i));
    recorder.finish(RunStatus::kComplete);
  }
  write_calibration(folder / "link.h5", {});
  const RunSet set = loaded(folder);
  const RunStudy runs(set);
  for (const Cells& family : families(runs.cells()))
    CHECK(fit_family(family, calibration_of(runs.cells()))
              .laws.at(CollectiveKind::kAllReduce)
              .calibrated == (family.front()->mode == "ddp"));
}

TEST_CASE("calibration file: a run's own calibration comes first, and of files the latest") {
  const TestFolder folder;
  const StudyRun run = run_on(2);
  write_calibration(folder / "early.h5", {2, "node0", "2026-01-01T00:00:00Z", 3});
  write_calibration(folder / "late.h5", {2, "node0", "2026-01-03T00:00:00Z", 1});
  write_study(folder / "run.h5", run);
  {
    const RunSet set = loaded(folder);
    REQUIRE(set.runs[0].calibration_file);
    CHECK(set.runs[0].calibration_file->paths.at(0).filename() == "late.h5");
    CHECK(contains(all_remarks(set), "early.h5 is not used: a later one is of the same ranks"));
  }
  std::filesystem::remove(folder / "run.h5");
  Recorder recorder(folder / "own.h5", study_info(run));
  for (std::size_t i = 0; i < run.iterations; ++i)
    recorder.add(study_row(run, i));
  for (const CalibrationRow& row : line(2))
    recorder.add(row);
  recorder.finish(RunStatus::kComplete);
  const RunSet set = loaded(folder);
  CHECK_FALSE(set.runs[0].calibration_file);
  CHECK(contains(all_remarks(set), "late.h5 is not used: the runs hold their own"));
  CHECK(allreduce_law(set).source == "calibration (mpi-ring, isolated)");
}

namespace {

/// As Intel MPI Benchmarks print it: t = latency_us + S · 2 ns on two ranks.
std::string imb_text(const char* benchmark, double latency_us) {
  std::string text = fmt::format(
      "# Benchmarking {} \n# #processes = 2 \n#bytes #repetitions t_min[usec] t_max[usec] "
      "t_avg[usec]\n",
      benchmark);
  for (const int bytes : {1 << 10, 1 << 16, 1 << 20, 4 << 20})
    text += fmt::format("{} 640 0 {:.3f} 0\n", bytes, latency_us + 2e-3 * bytes);
  return text;
}

}  // namespace

TEST_CASE("calibration file: --calibration goes before a run's own, for all runs of its ranks") {
  const TestFolder folder;
  StudyRun run = run_on(2);
  run.add_more = [](MadeRun& recorder) {
    for (const CalibrationRow& row : line(2))
      recorder.add(row);
  };
  write_study(folder / "run.h5", run);
  std::ofstream(folder / "reduce.txt") << imb_text("Allreduce", 50);
  std::ofstream(folder / "bcast.txt") << imb_text("Bcast", 30);
  std::ofstream(folder / "wide.txt")
      << "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n8  1\n64  2\n";
  const std::string reduce = (folder / "reduce.txt").string(), bcast = (folder / "bcast.txt");
  const RunSet set = load_runs(find_runs({(folder / "run.h5").string()}), {},
                               {{reduce, 0}, {bcast, 0}, {folder / "wide.txt", 8}});
  REQUIRE(set.runs[0].calibration_file);
  CHECK(set.runs[0].calibration_file->name() == reduce + ", " + bcast);
  CHECK(contains(all_remarks(set),
                 "wide.txt is not used: ranks: 2 in the runs, 8 in the calibration"));
  const LawEntry law = allreduce_law(set);
  CHECK(law.source == "calibration (mpi, isolated; " + reduce + ", " + bcast + ")");
  CHECK(law.fit.first * 2 == Approx(50e-6));  // two steps on two ranks
  CHECK(law.fit.second == Approx(2e-9));
  CHECK(claimed_files(set).size() == 4);
  const Table table = make_bandwidth_table(set, {});
  CHECK(table.rows[0][column_of(table, "fitted_ms")].number ==
        Approx(1e3 * (4 * 50e-6 + (7 << 20) * 2e-9)));
}

TEST_CASE("calibration file: sizes with wrong values are in no law") {
  const TestFolder folder;
  StudyRun run = run_on(2);
  run.add_more = [](MadeRun& recorder) {
    std::vector<CalibrationRow> rows = line(1);
    rows.push_back(rows.back());
    rows.back().bytes = 8 << 20;
    rows.back().median_s *= 100;
    rows.back().wrong = 1;
    for (const CalibrationRow& row : rows)
      recorder.add(row);
  };
  write_study(folder / "run.h5", run);
  const LawEntry law = allreduce_law(loaded(folder));
  CHECK(law.points.size() == 4);
  CHECK(law.fit.second == Approx(1e-9));
}

TEST_CASE("calibration file: a curve of another transport is no law of the runs, and is named") {
  const TestFolder folder;
  StudyRun run = run_on(2);
  run.change_info = [](RunInfo& info) { info.config.push_back({"transport", "shm", "default"}); };
  write_study(folder / "run.h5", run);
  std::ofstream(folder / "reduce.txt") << imb_text("Allreduce", 50);
  const RunSet set =
      load_runs(find_runs({(folder / "run.h5").string()}), {}, {{folder / "reduce.txt", 0}});
  CHECK(allreduce_law(set).source == "measured in training (over shm; the calibration is of mpi)");
}

TEST_CASE("calibration file: what-if with the curves of another network") {
  const TestFolder folder;
  write_study(folder / "run.h5", run_on(2));
  std::ofstream(folder / "network.txt") << imb_text("Allreduce", 50);
  const RunSet set = loaded(folder / "run.h5");
  const RunStudy runs(set);
  const StudyCell& cell = runs.cells().at(0);
  const FamilyFit fit = fit_family({&cell}, calibration_of(runs.cells()));
  WhatIf read = parse_what_if("network=" + (folder / "network.txt").string() + ",ranks=4");
  CHECK(read_network(read).empty());
  WhatIf change = with_network_laws(fit, read);
  // t(S, 4) = 6 steps of 25 us, and 1.5 S · 2 ns; training is as slow as its laws.
  LawWorld network;
  network.alpha_s = 25e-6;
  network.beta_s_per_byte = 2e-9;
  StudyRun expected = law_run(network, 4, 32);
  const double exposed_s = study_row(expected, 5).ranks[0][Phase::kExposed];
  CHECK(what_if(fit, cell, change).parts.exposed_s == Approx(exposed_s));

  TableOptions options;
  options.what_if = read;
  const Table table = make_what_if_table(set, options);
  CHECK(table.rows[1][column_of(table, "exposed_ms")].number == Approx(1e3 * exposed_s));
  CHECK(contains(all_notes(table), "network.txt, allreduce: calibration (mpi, isolated; "));
  CHECK(contains(all_notes(table), "of 2 ranks, 4 points: latency 25.00 us, 0.500 GB/s"));
  CHECK(contains(table.sources[1], "network.txt"));

  std::ofstream(folder / "network.txt") << imb_text("Bcast", 50);
  CHECK(read_network(read).empty());
  change = with_network_laws(fit, read);
  CHECK(std::isnan(what_if(fit, cell, change).parts.exposed_s));
  options.what_if = read;
  const Table without = make_what_if_table(set, options);
  CHECK(shown(without, 1, "step_ms") == "n/a");
  CHECK(contains(all_notes(without), "allreduce: no curve of two sizes or more: n/a"));

  std::filesystem::remove(folder / "network.txt");
  error_text(ExitCode::kNoInput, [&] { read_network(read); });
}

TEST_CASE("calibration file: another network's law is fitted near the sizes of the messages") {
  const TestFolder folder;
  StudyRun run = run_on(2);
  run.add_more = [](MadeRun& recorder) {
    // As slow as the messages where these are (100 us + S ns), and 100 times as fast below.
    for (const std::int64_t bytes : {1 << 10, 4 << 10, 16 << 10, 1 << 20, 2 << 20, 4 << 20}) {
      CalibrationRow row;
      row.transport = "mpi-ring";
      row.cadence = "isolated";
      row.bytes = bytes;
      row.median_s = (200e-6 + static_cast<double>(bytes) * 1e-9) / (bytes < 1 << 20 ? 100 : 1);
      recorder.add(row);
    }
  };
  write_study(folder / "run.h5", run);
  std::string text =
      "# Benchmarking Allreduce \n# #processes = 2 \n"
      "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]\n";
  for (const int bytes : {1 << 10, 4 << 10, 16 << 10, 1 << 20, 2 << 20, 4 << 20})
    text += fmt::format("{} 640 0 {:.3f} 0\n", bytes,
                        (50 + 2e-3 * bytes) / (bytes < 1 << 20 ? 100 : 1));
  std::ofstream(folder / "network.txt") << text;
  const RunSet set = loaded(folder / "run.h5");
  const RunStudy runs(set);
  const FamilyFit fit = fit_family({&runs.cells().at(0)}, calibration_of(runs.cells()));
  WhatIf change = parse_what_if("network=" + (folder / "network.txt").string());
  CHECK(read_network(change).empty());
  change = with_network_laws(fit, change);
  CHECK(change.network_slowdown == Approx(1).epsilon(0.01));  // over all sizes: far above 1
  CHECK(fit.slowdown > 1.5);
  const LawEntry& law = change.network_laws.at(CollectiveKind::kAllReduce);
  CHECK(law.points.size() == 3);
  CHECK(law.fit.second == Approx(2e-9));
}

TEST_CASE("calibration file: calibration alone is shown as a run without iterations") {
  const TestFolder folder;
  write_calibration(folder / "link.h5", {});
  const RunSet set = loaded(folder);
  REQUIRE(set.runs.size() == 1);
  CHECK(make_busbw_plot(set));
}

TEST_CASE("calibration curve: sizes whose time is 0 are left out") {
  const TestFolder folder;
  const StudyRun run = run_on(2);
  {
    Recorder recorder(folder / "run.h5", study_info(run));
    recorder.add(study_row(run, 0));
    std::vector<CalibrationRow> rows = line(1);
    rows.push_back(rows.front());
    rows.back().bytes = 8 << 20;
    rows.back().median_s = 0;
    for (const CalibrationRow& row : rows)
      recorder.add(row);
    recorder.finish(RunStatus::kComplete);
  }
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  const LinkCurve curve = link_curve(groups.at(0), CollectiveKind::kAllReduce);
  CHECK(curve.bytes.size() == 4);
}

namespace {

/// Ranks of one host with these cores and threads.
std::vector<RankPlace> host(const std::vector<std::string>& cores, std::int32_t threads = 1) {
  std::vector<RankPlace> places;
  for (const std::string& list : cores) {
    RankPlace place;
    place.rank = static_cast<std::int32_t>(places.size());
    place.host = "node1";
    place.affinity = list;
    place.threads = threads;
    places.push_back(place);
  }
  return places;
}

}  // namespace

TEST_CASE("oversubscription: threads of a host against the cores they may use") {
  CHECK_FALSE(oversubscription(host({"0-1", "0-1"})));
  const auto found = oversubscription(host({"0-1", "0-1", "0-1", "0-1"}));
  REQUIRE(found);
  CHECK(oversubscription_text(*found) == "4 ranks with 4 threads had 2 cores on host node1");
  CHECK(oversubscription(host({"0"}, 2)));
  CHECK_FALSE(oversubscription(host({"0,2-3,7"}, 4)));
}

TEST_CASE("oversubscription: ranks bound to the same core while others idle") {
  const auto found = oversubscription(host({"0", "0", "1-7"}));
  REQUIRE(found);
  CHECK(*found == Oversubscription{{2, 2, 1}, "node1"});
  CHECK_FALSE(oversubscription(host({"0", "1", "0-7"})));
}

TEST_CASE("oversubscription: each host by itself, and nothing of what was not recorded") {
  auto places = host({"0-1", "0-1", "0-1", "0-1"});
  places[2].host = places[3].host = "node2";
  CHECK_FALSE(oversubscription(places));
  places[3].host = "node1";
  CHECK(oversubscription(places));
  for (const std::string cores : {"", "all", "3-", "0-99999999999", "-1-2"}) {
    places[0].affinity = cores;
    CHECK_MESSAGE(!oversubscription(places), cores);
  }
  places[0].affinity = std::string(95, '1');  // cut when it was recorded
  CHECK_FALSE(oversubscription(places));
  places = host({"0", "0"}, 0);
  CHECK_FALSE(oversubscription(places));
  CHECK_FALSE(oversubscription({}));
}

TEST_CASE(
    "oversubscription: the remarks of all tables name such runs, which are a family of their own") {
  const RunFolder folder;
  write_study(folder / "crowded.h5", on_cores({"ddp", 4, 32, 0.01, 0.001}, "0-1"));
  write_study(folder / "roomy.h5", on_cores({"ddp", 2, 32, 0.01, 0.001}, "0-1"));
  const RunSet set = loaded(folder);
  const std::string note =
      "oversubscribed: 4 ranks with 4 threads had 2 cores on host node0 (crowded)";
  CHECK(contains(all_remarks(set), note));
  const auto cells = study_cells(set);
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].short_of_cores != cells[1].short_of_cores);
  CHECK(cells[0].family != cells[1].family);
}

namespace {

/// 10 ms of which 2 ms compute waits for communication; `cpu_s` a rank and iteration.
StudyRun using_cpu(double cpu_s, const std::string& mode = "ddp", const std::string& mpi = "") {
  StudyRun run = with_cpu_time({mode, 2, 32, 0.008, 0.002}, 100 * cpu_s);
  run.change_info = [mpi, before = run.change_info](RunInfo& info) {
    before(info);
    info.provenance.push_back({"mpi", mpi});
  };
  return run;
}

double least_share(const StudyRun& study) {
  const RunFolder folder;
  write_study(folder / "run.h5", study);
  const RunSet set = loaded(folder);
  return *std::min_element(set.runs[0].core_shares.begin(), set.runs[0].core_shares.end());
}

std::string shortage_of(const StudyRun& study) {
  const RunFolder folder;
  write_study(folder / "run.h5", study);
  return std::string(core_shortage(loaded(folder).runs[0]));
}

}  // namespace

TEST_CASE("shared host: the part of a core that ranks got while they did not wait") {
  CHECK(least_share(using_cpu(0.008)) == doctest::Approx(1));
  CHECK(least_share(using_cpu(0.004)) == doctest::Approx(0.5));
  CHECK(shortage_of(using_cpu(0.0073)).empty());
  CHECK(shortage_of(using_cpu(0.0071)) == "shared host");
  // What is used beside compute in one iteration does not make up for what another one lacks.
  StudyRun uneven = using_cpu(0);
  uneven.change = [before = uneven.change](IterationRow& row) {
    before(row);
    for (RankIteration& rank : row.ranks)
      rank[Usage::kCpuTime] = row.iteration % 2 == 0 ? 0.004 : 0.014;
  };
  CHECK(least_share(uneven) ==
        doctest::Approx(7.0 / 9));  // of 10, the one that lacked most left out
}

TEST_CASE("shared host: a single stall of any cause is none") {
  StudyRun stalled = using_cpu(0.008);
  stalled.change = [before = stalled.change](IterationRow& row) {
    before(row);
    if (row.iteration != 7) return;
    for (RankIteration& rank : row.ranks) {
      rank[Phase::kOther] += 3;
      rank[Phase::kIteration] += 3;
    }
  };
  CHECK(shortage_of(stalled).empty());
}

TEST_CASE("shared host: ranks of one host that together got less than a core while all wait") {
  StudyRun waiting = with_cpu_time({"ddp", 2, 32, 0.001, 0.009}, 0.3);
  CHECK(least_share(waiting) == doctest::Approx(0.6));
  CHECK(shortage_of(waiting) == "shared host");
  waiting.change_info = [before = waiting.change_info](RunInfo& info) {
    before(info);
    info.topology[1].host = "node1";
  };
  CHECK(shortage_of(waiting).empty());
}

TEST_CASE("shared host: waits that spin in MPI need a core, those that may sleep do not") {
  const std::string open_mpi = "Open MPI v4.1.4 (MPI 3.1)";
  CHECK(least_share(using_cpu(0.008, "gather-scatter", open_mpi)) == doctest::Approx(0.8));
  CHECK(least_share(using_cpu(0.008, "data-parallel", open_mpi)) == doctest::Approx(0.8));
  CHECK(least_share(using_cpu(0.008, "gather-scatter", "MPICH 4.1")) == doctest::Approx(1));
  CHECK(least_share(using_cpu(0.008, "ddp", open_mpi)) == doctest::Approx(1));
  const auto over_mpi = [&](const char* mode) {
    StudyRun run = using_cpu(0.008, mode, open_mpi);
    run.change_info = [before = run.change_info](RunInfo& info) {
      before(info);
      info.config.push_back({"transport", "mpi", "default"});
    };
    return least_share(run);
  };
  CHECK(over_mpi("allreduce") == doctest::Approx(0.8));
  CHECK(over_mpi("powersgd") == doctest::Approx(1));
}

TEST_CASE("shared host: not judged where nothing is recorded, and on GPUs") {
  CHECK(shortage_of({"ddp", 2, 32, 0.008, 0.002}).empty());
  StudyRun gpu = using_cpu(0.001);
  gpu.change_info = [before = gpu.change_info](RunInfo& info) {
    before(info);
    for (RankPlace& place : info.topology)
      place.device_uuid = "GPU-1";
  };
  CHECK(shortage_of(gpu).empty());
  StudyRun without_wait = using_cpu(0.001);
  without_wait.change = [before = without_wait.change](IterationRow& row) {
    before(row);
    for (RankIteration& rank : row.ranks)
      rank[Phase::kWait] = kNotMeasured;
  };
  without_wait.change_info = [before = without_wait.change_info](RunInfo& info) {
    before(info);
    info.topology[1].host = "node1";
  };
  CHECK(shortage_of(without_wait).empty());
  CHECK(shortage_of(on_cores(using_cpu(0.008), "0")) == "oversubscribed");
}

TEST_CASE(
    "shared host: no table calls a mode slower from such runs, and each has the reservation") {
  const RunFolder folder;
  write_study(folder / "a.h5", with_cpu_time({"allreduce", 2, 32, 0.010}, 1));
  write_study(folder / "b.h5", with_cpu_time({"ddp", 2, 32, 0.020}, 0.5));
  write_study(folder / "b2.h5", with_cpu_time({"ddp", 2, 32, 0.020}, 0.75));
  write_study(folder / "c.h5", with_cpu_time({"none", 1, 32, 0.010}, 1));
  write_study(folder / "c2.h5", with_cpu_time({"none", 1, 32, 0.010}, 1));
  const RunSet set = loaded(folder);
  const std::string note =
      "shared host: a rank on host node0 got at most 50 % to 75 % of a core while it did not wait "
      "(b, b2)";
  CHECK(contains(all_remarks(set), note));
  const auto cells_of_ddp = [&](const Table& table, const char* column) {
    for (const auto& row : table.rows)
      if (row[column_of(table, "mode")].shown() == "ddp")
        return row[column_of(table, column)].shown();
    return std::string("no row");
  };
  CHECK(cells_of_ddp(printed("modes-paired", set), "verdict") == "shared host");
  CHECK(cells_of_ddp(printed("summary", set), "to_fastest") == "n/a");
  CHECK(cells_of_ddp(printed("summary", set), "efficiency_percent") == "n/a");
  CHECK(cells_of_ddp(printed("speedup", set), "remark").starts_with("shared host"));
  const auto cells = study_cells(set);
  CHECK(std::count_if(cells.begin(), cells.end(),
                      [](const StudyCell& cell) { return cell.short_of_cores; }) == 1);
}

TEST_CASE("summary: what the ratios to the fastest leave open stands in its first note") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"allreduce", 2, 32, 0.010});
  write_study(folder / "b.h5", {"ddp", 2, 32, 0.020});
  CHECK(printed("summary", loaded(folder)).notes[0] ==
        "iteration: median, slowest rank [95 %]; to fastest: one start each, not tested");
  write_study(folder / "b2.h5", {"ddp", 2, 32, 0.022});
  CHECK(contains(printed("summary", loaded(folder)).notes[0], "runs differ by up to 10.0 %"));
  write_study(folder / "b3.h5", {"ddp", 2, 32, 0.021});
  for (const char* more : {"a2.h5", "a3.h5"})
    write_study(folder / more, {"allreduce", 2, 32, 0.0101});
  const Table tested = printed("summary", loaded(folder));
  CHECK(tested.notes[0] == "iteration: median, slowest rank [95 %]; to fastest: [95 %]");
  CHECK(shown(tested, 1, "to_fastest_low") == "1.86");
}

TEST_CASE("report: hosts that traces do not name are not one host") {
  RankPlace known, unknown;
  known.host = "node1";
  unknown.host = kUnknownHost;
  CHECK(on_one_host({known, known}));
  CHECK_FALSE(on_one_host({unknown, unknown}));
  CHECK_FALSE(on_one_host({RankPlace(), RankPlace()}));
}

TEST_CASE("report: networks of one model are told apart by their layers") {
  const RunFolder folder;
  const auto write = [&](const char* name, const char* length) {
    const SampleShape shape{"ddp", 2};
    RunInfo info = sample_info(shape);
    info.config.push_back({"sequence-length", length, "job file"});
    auto&& recorder = recorder_of(folder / name, info);
    recorder.add(sample_row(shape, 0));
    recorder.finish(RunStatus::kComplete);
  };
  write("a.h5", "1024");
  write("b.h5", "128");
  const RunSet set = loaded(folder);
  const Run &a = set.runs[0], &b = set.runs[1];
  CHECK(network_text(a, {&a}) == "lenet");
  CHECK(network_text(a, {&a, &b}) == "lenet, sequence-length=1024");
  CHECK(network_text(b, {&a, &b}) == "lenet, sequence-length=128");
}
