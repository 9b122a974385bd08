// SPDX-License-Identifier: BSD-3-Clause
#include "train/windows.h"

#include <cmath>

#include <doctest/doctest.h>

#include "data/cifar10.h"
#include "mpi/ranks.h"
#include "record/row_figures.h"
#include "sync/replay.h"
#include "train/iteration_timer.h"
#include "train/rank_measurements.h"

using namespace gradsync;
using gradsync::test::Ranks;

namespace {

/// What holds for a window of this kind, and for no other kind.
void require_figures_of(const std::string& kind, const RankWindow& rank, bool exchanges) {
  const bool computes = kind != "communication-only" && kind != "overlapped-unmeasured";
  CHECK(std::isnan(rank.compute_s) != computes);
  if (computes) CHECK(rank.compute_s > 0);
  if (computes) CHECK(rank.compute_s + rank.exposed_s < rank.iteration_s * (1 + 1e-9));
  CHECK(std::isnan(rank.comm_busy_s) == (kind == "overlapped-unmeasured"));
  if (kind == "compute-only") {
    CHECK(rank.comm_busy_s == 0);
    CHECK(rank.exposed_s == 0);
  } else if (kind != "overlapped-unmeasured" && exchanges) {
    CHECK(rank.comm_busy_s > 0);
    CHECK(rank.exposed_s <= rank.comm_busy_s * (1 + 1e-9));
  }
  if (kind == "communication-only" || kind == "serial")
    CHECK(rank.exposed_s == doctest::Approx(rank.comm_busy_s).epsilon(1e-6));
}

}  // namespace

TEST_CASE("windows: which kinds mean something" * test::once()) {
  CHECK(window_kinds("ddp", true).size() == 5);
  CHECK(window_kinds("c10d", true).size() == 5);
  CHECK(window_kinds("allreduce", true).size() == 4);  // serial itself
  CHECK(window_kinds("none", false).size() == 3);
  CHECK(window_kinds("ddp", false).size() == 3);
}

TEST_CASE("windows: a replay makes the recorded collectives, in order and size") {
  Ranks ranks;
  const std::vector<BucketShape> buckets = {{4096, CollectiveKind::kAllReduce},
                                            {1001, CollectiveKind::kBroadcast},
                                            {12, CollectiveKind::kGather},
                                            {400, CollectiveKind::kScatter},
                                            {8, CollectiveKind::kReduce}};
  for (const char* wire : {"fp32", "bf16"}) {
    Replay replay(ranks.exchange, buckets, /*overlaps=*/true, wire);
    CHECK(ranks.exchange.set_overlaps(true));  // as the replay has set it
    ranks.exchange.log().begin_iteration(0);
    replay.synchronize();
    const auto& records = ranks.exchange.log().records();
    REQUIRE(records.size() == buckets.size());
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      CHECK(records[i].kind == buckets[i].kind);
      CHECK(records[i].bytes == buckets[i].bytes);
    }
  }
}

TEST_CASE("windows: a replay of one rooted collective alone has room for all ranks at the root") {
  for (const CollectiveKind kind : {CollectiveKind::kGather, CollectiveKind::kScatter}) {
    Ranks ranks;
    Replay replay(ranks.exchange, {{4096, kind}}, /*overlaps=*/true, "fp32");
    ranks.exchange.log().begin_iteration(0);
    replay.synchronize();
    REQUIRE(ranks.exchange.log().records().size() == 1);
    CHECK(ranks.exchange.log().records()[0].bytes == 4096);
  }
}

TEST_CASE("windows: without timing nothing is stamped, and the sums are the same") {
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

TEST_CASE("windows: an iteration without stamps has its length and nothing else") {
  IterationTimer timer(false);
  timer.begin();
  { const IterationTimer::Scope scope(timer, Phase::kForward); }
  timer.stop({});
  const RankIteration row = timer.result();
  CHECK(row[Phase::kIteration] > 0);
  CHECK(std::isnan(row[Phase::kForward]));
  CHECK(std::isnan(row[Phase::kCompute]));
}

TEST_CASE("windows: rows of all kinds and ranks, and the trained replica stays bit-equal") {
  Ranks ranks;
  const test::SharedFolder folder;
  if (ranks.rank == 0) synthesize(folder.path() / "set", 1, 400, 20);
  MPI_Barrier(test::session().world());
  const Cifar10 data(folder.path() / "set");
  TrainOptions options;
  options.model = "lenet";
  options.batch_per_rank = 4;
  options.counterfactual = 3;
  options.counterfactual_rounds = 2;
  const ComputeSettings compute;
  const std::vector<RankPlace> places;
  const RunSetting setting{
      .options = options, .data = data, .compute = compute, .places = places, .start_s = now_s()};
  for (const char* mode : {"ddp", "allreduce"}) {
    options.sync = mode;
    Replica replica = make_replica("lenet", 3, compute.layout);
    const std::string before = parameter_hash(replica);
    const auto rows =
        run_windows(ranks.exchange, setting, {replica, {{40000, CollectiveKind::kAllReduce}}, 5});
    CHECK(parameter_hash(replica) == before);
    REQUIRE(rows.size() == 2 * window_kinds(mode, ranks.size > 1).size());
    if (ranks.rank != 0) continue;
    for (const WindowRow& row : rows) {
      INFO(mode << ' ' << row.kind);
      CHECK(row.iterations == 3);
      REQUIRE(row.ranks.size() == static_cast<std::size_t>(ranks.size));
      for (const RankWindow& rank : row.ranks) {
        CHECK(rank.iteration_s > 0);
        require_figures_of(row.kind, rank, ranks.size > 1);
      }
    }
    // Rounds begin with different kinds.
    CHECK(rows[0].kind != rows[rows.size() / 2].kind);
    CHECK(windows_table(rows).rows.size() == kWindowKinds.size());
    CHECK(std::isnan(counterfactual(rows).overlap_gain()) == (mode[0] == 'a' || ranks.size == 1));
  }
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
