// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/trace.h"

#include <cmath>
#include <map>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using nlohmann::json;

namespace {

struct TracedRun {
  TestFolder folder;
  RunSet set;

  explicit TracedRun(const SampleShape& shape = {}) {
    write_sample(folder / "run.h5", shape);
    set = load_runs(find_runs({(folder / "run.h5").string()}));
  }
  const Run& run() const { return set.runs.front(); }
  json trace(const TraceWindow& window) const { return json::parse(trace_json(run(), window)); }
};

/// An iteration of 12 s with the given hidden time: data 1 s, forward 2 s, backward 3 s, optimizer
/// 1 s, collectives at 2 to 4 s and at 7 to 8 s.
RankIteration iteration_of_12_s(double hidden_s) {
  RankIteration rank;
  rank[Phase::kIteration] = 12;
  rank[Phase::kData] = 1;
  rank[Phase::kForward] = 2;
  rank[Phase::kBackward] = 3;
  rank[Phase::kOptimizer] = 1;
  rank[Phase::kHidden] = hidden_s;
  rank.buckets = {{1, 2, 4}, {6, 7, 8}, {kNotMeasured, kNotMeasured, kNotMeasured}};
  return rank;
}

std::vector<json> slices(const json& trace, std::int64_t process, std::int64_t track) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == process && event["tid"] == track)
      found.push_back(event);
  return found;
}

/// Whether two slices overlap without one holding the other, by more than the rounding of times.
bool any_cross(const std::vector<json>& all) {
  constexpr double kAir = 2e-3;
  for (const json& a : all)
    for (const json& b : all) {
      const double a0 = a["ts"], a1 = a0 + a["dur"].get<double>();
      const double b0 = b["ts"], b1 = b0 + b["dur"].get<double>();
      if (a0 + kAir < b0 && b0 + kAir < a1 && a1 + kAir < b1) return true;
    }
  return false;
}

using Pieces = std::vector<Interval>;

}  // namespace

TEST_CASE("trace: phases follow each other where communication runs beside them") {
  const auto phases = place_phases(iteration_of_12_s(0.5));
  REQUIRE(phases.size() == 4);
  CHECK(phases[0].pieces == Pieces{{0, 1}});
  CHECK(phases[1].pieces == Pieces{{1, 3}});
  CHECK(phases[2].pieces == Pieces{{3, 6}});
  CHECK(phases[3].phase == Phase::kOptimizer);
  CHECK(phases[3].pieces == Pieces{{11, 12}});
}

TEST_CASE("trace: phases go around collectives that the rank waits in") {
  const auto phases = place_phases(iteration_of_12_s(0));
  REQUIRE(phases.size() == 4);
  CHECK(phases[1].pieces == Pieces{{1, 2}, {4, 5}});
  CHECK(phases[2].pieces == Pieces{{5, 7}, {8, 9}});
}

TEST_CASE("trace: phases that were not measured are left out") {
  RankIteration rank;
  CHECK(place_phases(rank).empty());
  rank[Phase::kForward] = 1;
  REQUIRE(place_phases(rank).size() == 1);
}

TEST_CASE("trace: a process a rank, times as recorded in us") {
  const TracedRun traced;
  const json trace = traced.trace({3, 4});
  std::map<std::int64_t, std::string> names;
  for (const json& event : trace["traceEvents"])
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
  CHECK(names == std::map<std::int64_t, std::string>{{1, "rank 0 (node0)"}, {2, "rank 1 (node0)"}});

  const auto iterations = slices(trace, 2, 1);
  REQUIRE(iterations.size() == 2);
  CHECK(iterations[0]["name"] == "iteration 3");
  CHECK(iterations[0]["ts"].get<double>() == doctest::Approx(22010));   // 2 x 11 ms + 10 us
  CHECK(iterations[0]["dur"].get<double>() == doctest::Approx(11200));  // 10 + 0.2 + 1 ms
  CHECK(iterations[0]["args"]["exposed_us"].get<double>() == doctest::Approx(1000));

  const auto buckets = slices(trace, 2, 4);
  REQUIRE_FALSE(buckets.empty());
  CHECK(buckets[0]["ts"].get<double>() == doctest::Approx(22010 + 3000));  // ready at 3 ms
  CHECK(buckets[0]["dur"].get<double>() == doctest::Approx(1010));
  CHECK(trace["otherData"]["clock_uncertainty_us"][0] == 0);
  CHECK(trace["otherData"]["clock_uncertainty_us"][1].get<double>() == doctest::Approx(0.2));
}

TEST_CASE("trace: slices of a track nest or follow each other") {
  const TracedRun traced;
  // One iteration at a time: those of the sample lie on each other.
  for (const std::size_t iteration : {1, 7}) {
    const json trace = traced.trace({iteration, iteration});
    for (const std::int64_t process : {1, 2})
      for (std::int64_t track = 1; track <= 6; ++track)
        CHECK_FALSE(any_cross(slices(trace, process, track)));
  }
  CHECK(any_cross({{{"ts", 0}, {"dur", 2}}, {{"ts", 1}, {"dur", 2}}}));
}

TEST_CASE("trace: every length of a phase is the measured one") {
  const TracedRun traced;
  double forward_us = 0;
  for (const json& event : slices(traced.trace({5, 5}), 1, 2)) {
    CHECK(contains(event["args"]["start"], "derived"));
    if (event["name"] == "forward") forward_us += event["dur"].get<double>();
  }
  CHECK(forward_us == doctest::Approx(2000));
}

TEST_CASE("trace: which iterations") {
  const TracedRun traced;
  const Run& run = traced.run();
  const auto is = [&](const std::string& text, std::size_t first, std::size_t last) {
    const TraceWindow window = trace_window(text, run);
    CHECK(window.first == first);
    CHECK(window.last == last);
  };
  is("", 3, 12);  // 2 of 12 are warm-up, at most 10
  is("5", 5, 5);
  is("1-12", 1, 12);
  for (const char* bad :
       {"0", "13", "5-4", "1-13", "-3", "3-", "a", "1-2-3", "99999999999999999999"})
    CHECK(contains(refusal([&] { trace_window(bad, run); }), "1 <= A <= B <= 12"));
}

TEST_CASE("trace: what was not measured is left out and counted") {
  const TestFolder folder;
  write_unmeasured(folder / "run.h5", 3);
  const RunSet set = load_runs(find_runs({(folder / "run.h5").string()}));
  const json trace = json::parse(trace_json(set.runs.front(), {1, 3}));
  CHECK(trace["otherData"]["rank_iterations_left_out_as_not_measured"] == 6);
  CHECK(slices(trace, 1, 1).empty());
}

TEST_CASE("trace: a compressed one is what gzip reads, and the same each time") {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text += std::to_string(i * i % 7919) + ",";
  write_trace(folder / "t.json.gz", text);
  CHECK(gzipped(text) == read_text_file(folder / "t.json.gz"));
  const auto unpacked = capture_process({"gzip", "-dc", (folder / "t.json.gz").string()});
  CHECK(unpacked.result.succeeded());
  CHECK(unpacked.output == text);
  write_trace(folder / "t.json", text);
  CHECK(read_text_file(folder / "t.json") == text);
  CHECK(gzipped("").size() == 20);
}
