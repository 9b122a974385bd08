#include <cmath>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/study.h"
#include "analysis/model/what_if.h"
#include "analysis/output/claims.h"
#include "analysis/plots/plots.h"
#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

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
  CHECK(contains(all_notes(table), "other.h5 is not used"));
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
  run.add_more = [](Recorder& recorder) {
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
  run.add_more = [](Recorder& recorder) {
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
  run.add_more = [](Recorder& recorder) {
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
