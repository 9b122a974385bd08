// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/rank_figures.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

/// Three ranks, one collective an iteration; `start_s` and `begin_s` have one value a rank.
void write_arrivals(const RunFolder::File& path, const std::vector<double>& begin_s,
                    const std::vector<double>& start_s, std::size_t iterations) {
  const SampleShape shape{"allreduce", start_s.size(), iterations, 100, 32, 0};
  MadeRun& recorder = recorder_of(path, sample_info(shape));
  for (std::size_t i = 0; i < iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    row.buckets = {{4096, CollectiveKind::kAllReduce}};
    for (std::size_t r = 0; r < start_s.size(); ++r) {
      row.ranks[r].begin_s = begin_s[r] + static_cast<double>(i);
      row.ranks[r].buckets = {{0, start_s[r], 0.5}};
      row.ranks[r][Phase::kWait] = 0.001 * static_cast<double>(r);
    }
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

Stragglers of(const RunFolder::File& file) {
  const auto run = file.folder->open(file.name);
  return stragglers(*run, steady_rows(*run));
}

}  // namespace

TEST_CASE("stragglers: who came last is charged with what the others waited, by hand") {
  const RunFolder folder;
  // Arrivals 10, 13, 12 ms: rank 1 is last and costs 3 + 1 ms. Its start alone is the earliest.
  write_arrivals(folder / "run.h5", {0.005, 0.009, 0.006}, {0.005, 0.004, 0.006}, 4);
  const Stragglers all = of(folder / "run.h5");
  CHECK(all.iterations == 3);
  CHECK(all.collectives == 3);
  CHECK(all.ranks[1].caused_s == Approx(0.004));
  CHECK(all.ranks[0].caused_s == 0);
  CHECK(all.ranks[2].caused_s == 0);
  CHECK(all.ranks[1].caused_percent == Approx(100));
  CHECK(all.ranks[1].last_percent == Approx(100));
  CHECK(all.ranks[2].last_percent == 0);
  CHECK(all.ranks[2].suffered_s == Approx(0.002));
  CHECK(all.ranks[0].suffered_s == 0);
  CHECK(all.undecided_percent == 0);
}

TEST_CASE("stragglers: arrivals nearer than the clocks tell are counted as undecided") {
  const RunFolder folder;
  write_arrivals(folder / "run.h5", {0, 0, 0}, {0.001, 0.0100001, 0.01}, 4);
  CHECK(of(folder / "run.h5").undecided_percent == Approx(100));  // 0.1 µs, clocks to 0.2 µs each
}

TEST_CASE("stragglers: ranks that were not measured, one rank, one iteration, no collective") {
  const RunFolder folder;
  write_arrivals(folder / "hole.h5", {0, 0, 0}, {0.010, kNan, 0.012}, 3);
  CHECK(of(folder / "hole.h5").ranks[2].caused_s == Approx(0.002));
  CHECK(of(folder / "hole.h5").ranks[1].caused_s == 0);
  write_arrivals(folder / "nothing.h5", {0, 0, 0}, {kNan, kNan, 0.012}, 3);
  CHECK(of(folder / "nothing.h5").collectives == 0);
  CHECK(std::isnan(of(folder / "nothing.h5").ranks[2].caused_s));
  write_arrivals(folder / "alone.h5", {0}, {0.010}, 3);
  CHECK(std::isnan(of(folder / "alone.h5").ranks[0].caused_s));
  write_arrivals(folder / "one.h5", {0, 0}, {0.010, 0.011}, 1);
  CHECK(std::isnan(of(folder / "one.h5").ranks[1].caused_s));
  CHECK(std::isnan(of(folder / "one.h5").ranks[1].suffered_s));
  write_arrivals(folder / "none.h5", {0, 0}, {0.010, 0.011}, 0);
  CHECK(std::isnan(of(folder / "none.h5").ranks[1].caused_s));
}

TEST_CASE("stragglers and traffic: a journal says the same as its file") {
  const TestFolder folder;
  const SampleShape shape{"ddp", 3, 40, 100, 32, 2};
  write_sample(folder / "run.h5", shape);
  {
    Recorder recorder(folder / "killed.h5", sample_info(shape));
    record_sample(recorder, shape);
    recorder.sync();
  }
  const auto file = open_run(folder / "run.h5");
  const auto journal = open_run(folder / "killed.h5.journal");
  const SteadyRows steady = steady_rows(*file);
  CHECK(steady_rows(*journal).first == steady.first);
  const Stragglers a = stragglers(*file, steady), b = stragglers(*journal, steady);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(a.ranks[rank].caused_s == b.ranks[rank].caused_s);
    CHECK(a.ranks[rank].last_percent == b.ranks[rank].last_percent);
    CHECK(traffic_figures(*file, steady)[rank].bytes ==
          traffic_figures(*journal, steady)[rank].bytes);
  }
  // Two collectives an iteration; all ranks start alike, so the begin (10 µs apart) decides.
  CHECK(a.collectives == 76);
  CHECK(a.ranks[2].last_percent == Approx(100));
  CHECK(a.ranks[2].caused_s == Approx(2 * 30e-6));
}

TEST_CASE("traffic: mean of the steady iterations by category, and the sum over ranks") {
  const RunFolder folder;
  write_sample(folder / "run.h5", {});
  const auto run = folder.open("run.h5");
  const auto ranks = traffic_figures(*run, steady_rows(*run));
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].iterations == 10);
  CHECK(ranks[0].bytes == std::array<double, kRowCategories>{1000, 0, 8, 0, 24, 64});
  CHECK(ranks[1].total() == 1097);
  CHECK(sum_of(ranks).total() == 1096 + 1097);
  write_sample(folder / "one.h5", {"none", 1, 1, 5, 32, 0});
  const auto one = folder.open("one.h5");
  CHECK(std::isnan(traffic_figures(*one, steady_rows(*one))[0].total()));
}
