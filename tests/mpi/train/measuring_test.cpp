// SPDX-License-Identifier: BSD-3-Clause

#include <cmath>

#include <doctest/doctest.h>

#include "mpi/ranks.h"
#include "train/iteration_timer.h"
#include "train/rank_measurements.h"

using namespace gradsync;
using gradsync::test::Ranks;

TEST_CASE("measuring: without timing nothing is stamped, and the sums are the same") {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  std::vector<float> data = {static_cast<float>(ranks.rank)};
  ranks.exchange.log().set_timing(false);
  ranks.exchange.run(Collective::all_reduce(data, Scale::kSum), Traffic::kGradients);
  CHECK(ranks.exchange.log().records().empty());
  const int sum = ranks.size * (ranks.size - 1) / 2;
  CHECK(data[0] == static_cast<float>(sum));
  ranks.exchange.log().set_timing(true);
  ranks.exchange.run(Collective::all_reduce(data, Scale::kSum), Traffic::kGradients);
  CHECK(ranks.exchange.log().records().size() == 1);
}

TEST_CASE("measuring: an iteration without stamps has its length and nothing else") {
  IterationTimer timer(false);
  timer.begin();
  { const IterationTimer::Scope scope(timer, Phase::kForward); }
  timer.stop({});
  const RankIteration row = timer.result();
  CHECK(row[Phase::kIteration] > 0);
  CHECK(std::isnan(row[Phase::kForward]));
  CHECK(std::isnan(row[Phase::kCompute]));
}

TEST_CASE("clocks: readings of all ranks, and their drift in words" * test::several_ranks()) {
  Ranks ranks;
  const ClockRow row = clock_row(test::session(), {0.5 * ranks.rank, 0.25}, "start", 2);
  CHECK(row.ranks.size() == static_cast<std::size_t>(ranks.rank == 0 ? ranks.size : 0));
  if (ranks.rank == 0) CHECK(row.ranks.back().offset_s == 0.5 * (ranks.size - 1));
  const ClockRow start{"start", 1, {{0, 0}, {1e-3, 2e-6}, {2e-3, 1e-6}}};
  const ClockRow end{"end", 11, {{0, 0}, {1e-3 + 5e-6, 3e-6}, {2e-3 - 9e-6, 1e-6}}};
  CHECK(drift_text(start, end) ==
        "clocks: drift at most 9.000 us in 10.0 s (0.900 ppm), uncertainty 2.000 us");
  const ClockRow still{"end", 11, {{0, 0}, {1e-3 + 4e-6, 3e-6}, {2e-3, 1e-6}}};
  CHECK(drift_text(start, still).find("below the uncertainty") != std::string::npos);
}
