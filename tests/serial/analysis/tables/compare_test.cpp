// SPDX-License-Identifier: BSD-3-Clause
#include <functional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/report_options.h"
#include "analysis/tables/comparison.h"
#include "analysis/tables/tables.h"
#include "base/file.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

/// Iterations of `time_s`, every second one 1 % longer.
void write_timed(const auto& path, const std::string& mode, double time_s,
                 std::size_t iterations = 40, const std::function<void(RunInfo&)>& change = {}) {
  const SampleShape shape{mode, 2, iterations, 1000, 32, 1};
  RunInfo info = sample_info_at(path, shape);
  if (change) change(info);
  auto&& recorder = recorder_of(path, info);
  for (std::size_t i = 0; i < iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    for (RankIteration& rank : row.ranks) {
      rank[Phase::kIteration] = time_s * (i % 2 == 0 ? 1.01 : 1);
      rank[Phase::kOther] = rank[Phase::kIteration] - 0.007;
    }
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

int compare(const std::vector<std::string>& arguments) {
  std::vector<const char*> words = {"compare"};
  for (const std::string& argument : arguments)
    words.push_back(argument.c_str());
  return compare_command(static_cast<int>(words.size()), words.data());
}

}  // namespace

TEST_CASE("compare: with one start each a ratio has no interval, and the ratio alone decides") {
  const TestFolder folder;
  for (const char* side : {"a", "b"})
    std::filesystem::create_directories(folder / side);
  write_timed(folder / "a/x.h5", "none", 0.010);
  write_timed(folder / "b/x.h5", "none", 0.012);
  write_timed(folder / "a/y.h5", "allreduce", 0.020);
  write_timed(folder / "b/y.h5", "allreduce", 0.015);
  write_timed(folder / "a/u.h5", "c10d", 0.010, 0);
  write_timed(folder / "b/u.h5", "c10d", 0.020, 4);
  write_timed(folder / "a/v.h5", "gather-scatter", 0.010);
  write_timed(folder / "b/w.h5", "data-parallel", 0.010);
  const RunSet a = loaded(folder / "a"), b = loaded(folder / "b");
  const auto groups_a = group_runs(a), groups_b = group_runs(b);
  const auto cells = compare_groups(groups_a, groups_b);
  std::string verdicts;
  for (const ComparedCell& cell : cells)
    verdicts += cell.name + ": " + cell.verdict() + "\n";
  CHECK(verdicts ==
        "lenet.none.n2.b32: one start\n"
        "lenet.gather-scatter.n2.b32: only in A\n"
        "lenet.allreduce.n2.b32: one start\n"
        "lenet.c10d.n2.b32: n/a\n"
        "lenet.data-parallel.n2.b32: only in B\n");
  CHECK(cells[0].ratio.value == Approx(1.2).epsilon(0.011));
  CHECK_FALSE(cells[0].ratio.has_interval());
  CHECK(cells[0].fails(0.05));
  CHECK_FALSE(cells[0].fails(0.25));
  CHECK_FALSE(cells[2].fails(0));  // faster is no failure
  CHECK_FALSE(cells[3].fails(0.05));
  const std::string junit = junit_text(cells, {}, 0.05);
  CHECK(contains(junit, "tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"3\""));
  CHECK(count_of(junit, "<testcase ") == 5);
  CHECK(count_of(junit, "<failure ") == 1);
  CHECK(count_of(junit, "<skipped ") == 3);
  CHECK(contains(junit, "(one start each), A 0.01 s, B 0.012 s, one start"));
  const Table table = comparison_table(cells, 0.05);
  CHECK(shown(table, 0, "verdict") == "one start (beyond the threshold)");
  CHECK(shown(table, 0, "ratio_over") == "one start each");
  CHECK(shown(table, 0, "ratio_low") == "n/a");
  CHECK(shown(table, 0, "a_iterations") == "39");
  CHECK(shown(table, 1, "b_median_ms") == "n/a");
  CHECK(contains(all_notes(table), "repeat the runs or use gradsync-train --compare"));
}

namespace {

/// Starts in the folder of a side, as many as `times_s`.
void write_starts(const std::filesystem::path& side, const std::string& mode,
                  const std::vector<double>& times_s) {
  std::filesystem::create_directories(side);
  for (std::size_t i = 0; i < times_s.size(); ++i)
    write_timed(side / fmt::format("{}-{}.h5", mode, i), mode, times_s[i]);
}

}  // namespace

TEST_CASE("compare: faster, slower, no difference and too few by the starts of each side") {
  const TestFolder folder;
  const auto a = folder / "a", b = folder / "b";
  write_starts(a, "none", {0.0100, 0.0101, 0.0102});
  write_starts(b, "none", {0.0120, 0.0121, 0.0122});
  write_starts(a, "gather-scatter", {0.0120, 0.0121, 0.0122});
  write_starts(b, "gather-scatter", {0.0100, 0.0101, 0.0102, 0.0103});
  // Each two of these starts are clearly different runs of the same thing.
  write_starts(a, "allreduce", {0.010, 0.014, 0.011});
  write_starts(b, "allreduce", {0.012, 0.011, 0.015});
  write_starts(a, "ddp", {0.0100, 0.0101});
  write_starts(b, "ddp", {0.0200, 0.0201});
  const RunSet set_a = loaded(a), set_b = loaded(b);
  const auto groups_a = group_runs(set_a), groups_b = group_runs(set_b);
  const auto cells = compare_groups(groups_a, groups_b);
  std::string verdicts;
  for (const ComparedCell& cell : cells)
    verdicts += cell.verdict() + ", " + cell.ratio.basis + "\n";
  CHECK(verdicts ==
        "slower, 3 starts each\n"
        "faster, 4 and 3 starts\n"
        "no difference, 3 starts each\n"
        "too few, 2 starts each\n");
  CHECK(cells[0].ratio.value == Approx(1.198).epsilon(0.001));
  CHECK(cells[0].ratio.low > 1.16);
  CHECK(cells[0].ratio.high < 1.24);
  CHECK(cells[0].fails(0.05));
  CHECK_FALSE(cells[2].fails(0.01));  // 1.08, but the interval holds 1
  // Without an interval the ratio decides, where it is beyond the spread of A's starts: 1.4.
  CHECK(cells[3].fails(0.05));
  for (const char* name : {"ddp-0.h5", "ddp-1.h5"})
    std::filesystem::remove(b / name);
  write_starts(b, "ddp", {0.013, 0.013});
  const RunSet nearer = loaded(b);
  const auto groups_nearer = group_runs(nearer);
  const ComparedCell within = compare_groups(groups_a, groups_nearer)[3];
  CHECK(within.verdict() == "within the spread");
  CHECK_FALSE(within.fails(0.05));
  // The spread of either side counts, also where the other one shows none.
  const auto one = folder / "one";
  write_starts(one, "ddp", {0.0125});
  const RunSet set_one = loaded(one);
  const auto groups_one = group_runs(set_one);
  CHECK(compare_groups(groups_a, groups_one)[3].verdict() == "within the spread");
  CHECK(compare_groups(groups_one, groups_a)[0].verdict() == "within the spread");
  CHECK(contains(all_notes(comparison_table({within}, 0.05)),
                 "runs of the same work differ by up to 40.0 % (lenet: 3 repeats of a cell"));
}

TEST_CASE("compare: the command's exit code, files and refusals") {
  const TestFolder folder;
  write_timed(folder / "a.h5", "ddp", 0.010);
  write_timed(folder / "b.h5", "ddp", 0.0107, 40, [](RunInfo& info) {
    info.provenance.push_back({"nccl", "2.28 <&\">"});
  });
  write_timed(folder / "other.h5", "none", 0.010);
  const std::string a = (folder / "a.h5").string(), b = (folder / "b.h5").string();
  const std::string out = (folder / "out").string(), xml = (folder / "junit.xml").string();
  CHECK(compare({a, b, "--output", out, "--format", "text,csv", "--junit", xml}) == 1);
  CHECK(compare({a, b, "--output", out, "--threshold", "10%"}) == 0);
  CHECK(compare({a, b, "--output", out, "--threshold", "0.1"}) == 0);
  CHECK(compare({b, a, "--output", out, "--threshold", "0"}) == 0);
  CHECK(contains(read_text_file(folder / "out/compare.csv"), "lenet.ddp.n2.b32"));
  CHECK(contains(read_text_file(folder / "out/compare.txt"),
                 "A and B differ in nccl: '2.28 <&\">' in A, '' in B"));
  CHECK(contains(read_text_file(xml), "<failure message="));
  refusal([&] { compare({a}); });
  refusal([&] { compare({a, b, "--threshold", "much"}); });
  refusal([&] { compare({a, b, "--threshold", "-1%"}); });
  CHECK(contains(error_text(ExitCode::kBadData,
                            [&] {
                              compare({a, (folder / "other.h5").string()});
                            }),
                 "share no cell"));
  error_text(ExitCode::kNoInput, [&] { compare({a, (folder / "missing.h5").string()}); });
}

TEST_CASE("compare: JUnit texts are escaped") {
  const ComparedCell cell{{"a<b>&\"c\"\n"}};
  CHECK(contains(junit_text({cell}, {}, 0), "name=\"a&lt;b&gt;&amp;&quot;c&quot;?\""));
}

TEST_CASE("fom: a line each figure, n/a where nothing was measured") {
  CHECK(fom_line({"x.y", 12.5, "ms"}) == "FOM x.y 12.5 ms");
  CHECK(fom_line({"x.y", kNotMeasured, "ms"}) == "FOM x.y n/a ms");
  const RunFolder folder;
  write_timed(folder / "a.h5", "ddp", 0.010, 42);
  write_timed(folder / "b.h5", "ddp", 0.010, 1, [](RunInfo& info) {
    info.config.push_back({"bucket-cap", "1", "command line"});
  });
  const RunSet set = loaded(folder);
  const auto foms = figures_of_merit(group_runs(set));
  REQUIRE(foms.size() == 6);
  // 41 steady iterations, of which 20 are 10.1 ms and 21 are 10 ms.
  CHECK(fom_line(foms[0]) == "FOM iteration_median.lenet.ddp.n2.b32.bucket-cap=25MiB 10 ms");
  CHECK(fom_line(foms[1]) == "FOM images_per_s.lenet.ddp.n2.b32.bucket-cap=25MiB 6400 images/s");
  CHECK(fom_line(foms[2]) ==
        "FOM exposed_median_slowest_rank.lenet.ddp.n2.b32.bucket-cap=25MiB 1 ms");
  CHECK(fom_line(foms[3]) == "FOM iteration_median.lenet.ddp.n2.b32.bucket-cap=1 n/a ms");
}

TEST_CASE("modes-paired: each mode against the first that exchanges, of the same cell") {
  const RunFolder folder;
  write_timed(folder / "a.h5", "none", 0.008);
  write_timed(folder / "b.h5", "allreduce", 0.016);
  write_timed(folder / "c.h5", "ddp", 0.012);
  write_timed(folder / "d.h5", "ddp", 0.012);
  write_sample(folder / "e.h5", {"none", 1, 12, 5, 32, 2});
  const Table table = make_modes_paired_table(loaded(folder), {});
  REQUIRE(table.rows.size() == 4);
  CHECK(shown(table, 0, "verdict") == "alone");
  CHECK(shown(table, 0, "ranks") == "1");
  CHECK(shown(table, 1, "against") == "allreduce");
  CHECK(shown(table, 1, "ratio") == "0.500");
  CHECK(shown(table, 1, "ratio_low") == "n/a");
  CHECK(shown(table, 1, "ratio_over") == "one start each");
  CHECK(shown(table, 1, "verdict") == "one start");
  CHECK(shown(table, 2, "verdict") == "reference");
  CHECK(shown(table, 2, "ratio") == "n/a");
  CHECK(shown(table, 3, "ratio") == "0.750");
  CHECK(shown(table, 3, "ratio_over") == "2 and 1 starts");
  CHECK(shown(table, 3, "runs") == "2");
  CHECK(shown(table, 3, "iterations") == "78");
  CHECK(contains(all_notes(table), "one start each: no interval"));
}

TEST_CASE("profile: percent of a step, by hand") {
  const RunFolder folder;
  write_timed(folder / "a.h5", "ddp", 0.010 / 1.005, 41);  // 20 pairs: mean 10 ms
  const Table table = make_profile_table(loaded(folder), {});
  REQUIRE(table.rows.size() == 1);
  CHECK(shown(table, 0, "iteration_ms") == "10.00");
  CHECK(shown(table, 0, "forward_percent") == "20.0");
  CHECK(shown(table, 0, "backward_percent") == "35.0");
  CHECK(shown(table, 0, "exposed_percent") == "10.0");
  CHECK(shown(table, 0, "optimizer_percent") == "5.0");
  CHECK(shown(table, 0, "data_percent") == "5.0");
  CHECK(shown(table, 0, "other_percent") == "25.0");
  CHECK(shown(table, 0, "hidden_percent") == "20.0");
}

TEST_CASE("tables: one iteration, none, NaN everywhere, a running run: n/a or its status") {
  const TestFolder folder;
  write_timed(folder / "one.h5", "ddp", 0.010, 1);
  write_sample(folder / "none.h5", {"none", 1, 0, 5, 32, 0}, RunStatus::kPartial);
  write_unmeasured(folder / "nan.h5", 60);
  {
    Recorder recorder(folder / "going.h5", sample_info({"allreduce", 2}));
    recorder.add(sample_row({"allreduce", 2}, 0));
    recorder.sync();
  }
  const RunSet set = loaded(folder.path());
  for (const char* column : {"iteration_median_ms", "iteration_median_low_ms", "ratio"})
    for (std::size_t row = 0; row < 3; ++row)
      CHECK(shown(make_modes_paired_table(set, {}), row, column) == "n/a");
  const Table profile = printed("profile", set);
  const Table stragglers = printed("stragglers", set);
  const Table traffic = printed("traffic", set);
  for (std::size_t row = 0; row < profile.rows.size(); ++row)
    CHECK(shown(profile, row, "other_percent") == "n/a");
  for (std::size_t row = 0; row < stragglers.rows.size(); ++row)
    CHECK(shown(stragglers, row, "suffered_ms") == "n/a");
  CHECK(shown(traffic, 0, "total_bytes") == "n/a");
  CHECK(shown(traffic, 0, "status") == "partial");
  std::string remarks;
  for (const std::string& remark : set.remarks)
    remarks += remark + "\n";
  CHECK(contains(remarks, "120 of 120 iteration times are missing (rank 0, 1)"));
  CHECK(contains(remarks, "status running, 1 iteration"));
}

namespace {

/// A file of gradsync-calibrate: two cycles of 1 MiB of which one is 1 % longer.
void write_calibration(const std::filesystem::path& path, double median_s,
                       const char* type = "float", std::size_t ranks = 2) {
  RunInfo info = sample_info({"none", ranks, 0, 1000, 32, 1});
  info.run_id += " in " + path.string();
  std::erase_if(info.config, [](const ConfigEntry& entry) { return entry.name == "sync"; });
  Recorder recorder(path, info);
  for (int cycle = 0; cycle < 2; ++cycle) {
    CalibrationRow row = sample_calibration()[0];
    row.kind = CollectiveKind::kAllReduce;
    row.transport = "shm";
    row.cadence = "isolated";
    row.type = type;
    row.bytes = 1 << 20;
    row.repetitions = 100;
    row.median_s = median_s * (cycle % 2 == 0 ? 1.01 : 1);
    row.wrong = 0;
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

std::vector<Compared> links_of(const std::filesystem::path& a, const std::filesystem::path& b) {
  return compare_links(loaded(a), loaded(b));
}

}  // namespace

TEST_CASE("compare: between ranks of one nothing moves that could be slower") {
  const TestFolder folder;
  for (const char* side : {"before", "now"}) {
    std::filesystem::create_directories(folder / side);
    write_calibration(folder / side / "2.h5", 1e-4);
    write_calibration(folder / side / "1.h5", side == std::string("now") ? 2e-6 : 1e-6, "float", 1);
  }
  const auto links = links_of(folder / "before", folder / "now");
  REQUIRE(links.size() == 1);
  CHECK(contains(links[0].name, ".n2."));
  CHECK(compare({(folder / "before").string(), (folder / "now").string()}) == 0);
}

TEST_CASE("compare: bandwidth of calibration files, of one start and of several") {
  const TestFolder folder;
  write_calibration(folder / "a.h5", 1e-4);
  write_calibration(folder / "same.h5", 1e-4);
  write_calibration(folder / "half.h5", 2e-4);
  const auto half = links_of(folder / "a.h5", folder / "half.h5");
  REQUIRE(half.size() == 1);
  CHECK(half[0].name == "allreduce.shm.isolated.n2.1MiB");
  CHECK(half[0].a == Approx(10.486e9).epsilon(0.011));
  CHECK(half[0].ratio.value == Approx(0.5).epsilon(0.011));
  CHECK_FALSE(half[0].ratio.has_interval());
  CHECK(half[0].verdict() == "one start");
  CHECK(half[0].fails(0.05));
  CHECK_FALSE(half[0].fails(0.6));
  CHECK_FALSE(links_of(folder / "half.h5", folder / "a.h5")[0].fails(0));
  const std::string a = (folder / "a.h5").string(), slow = (folder / "half.h5").string();
  const std::string xml = (folder / "out.xml").string();
  CHECK(compare({a, slow, "--junit", xml}) == 1);
  CHECK(contains(read_text_file(xml), "failures=\"1\""));
  CHECK(compare({a, (folder / "same.h5").string()}) == 0);

  for (const char* side : {"before", "now"})
    std::filesystem::create_directories(folder / side);
  for (int file = 0; file < 3; ++file) {
    write_calibration(folder / fmt::format("before/{}.h5", file), 1e-4 * (1 + 0.01 * file));
    write_calibration(folder / fmt::format("now/{}.h5", file), 2e-4 * (1 + 0.01 * file));
  }
  const auto slower = links_of(folder / "before", folder / "now");
  CHECK(slower[0].verdict() == "slower");
  CHECK(slower[0].ratio.basis == "3 starts each");
  CHECK(slower[0].ratio.high < 0.53);
  CHECK(slower[0].ratio.low > 0.47);
  CHECK(links_of(folder / "now", folder / "before")[0].verdict() == "faster");
  CHECK(links_of(folder / "now", folder / "now")[0].verdict() == "no difference");
  // Copies of a file are no starts.
  std::filesystem::create_directories(folder / "copies");
  for (const char* copy : {"1.h5", "2.h5", "3.h5"})
    std::filesystem::copy_file(folder / "now/0.h5", folder / "copies" / copy);
  CHECK(links_of(folder / "before", folder / "copies")[0].verdict() == "one start");
}

TEST_CASE("compare: other types of data are other cells") {
  const TestFolder folder;
  write_calibration(folder / "new.h5", 2e-4);
  write_calibration(folder / "half.h5", 2e-4, "half");
  const auto other = links_of(folder / "new.h5", folder / "half.h5");
  REQUIRE(other.size() == 2);
  CHECK(other[0].verdict() == "only in A");
  CHECK(other[1].name == "allreduce.shm.isolated.n2.1MiB.half");
  CHECK(other[1].verdict() == "only in B");
  CHECK(
      contains(error_text(ExitCode::kBadData,
                          [&] {
                            compare({(folder / "new.h5").string(), (folder / "half.h5").string()});
                          }),
               "share no cell"));
}
