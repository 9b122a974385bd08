#include <cmath>

#include <doctest/doctest.h>

#include "model/network.h"
#include "mpi/ranks.h"
#include "optim/optimizer.h"
#include "options/fault.h"
#include "options/options.h"
#include "step/gather_rows.h"
#include "step/gradient_guard.h"
#include "sync/sync_mode.h"
#include "train/provenance.h"

using namespace gradsync;
using gradsync::test::Ranks;

TEST_CASE("networks have the parameters that the literature counts" * test::once()) {
  const auto count = [](const char* name) {
    return make_replica(name, 1, Layout::kNchw).parameter_count();
  };
  CHECK(count("vgg11") == 9231114);
  CHECK(count("resnet18") == 11173962);
  CHECK(count("resnet18-imagenet") == 11689512);
  CHECK(count("lenet") == 61780);
}

TEST_CASE("one seed gives one network on every rank, another seed another, whatever the layout") {
  const std::string mine = parameter_hash(make_replica("lenet", 5, Layout::kNhwc));
  CHECK(mine == parameter_hash(make_replica("lenet", 5, Layout::kNchw)));
  CHECK(mine != parameter_hash(make_replica("lenet", 6, Layout::kNhwc)));
  std::string first = mine;
  MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_CHAR, 0, test::session().world());
  CHECK(mine == first);
}

TEST_CASE("NaN and infinity are found anywhere, and nothing else is" * test::once()) {
  std::vector<float> values(1003, 1e30f);
  CHECK(all_finite(values));
  for (const float bad : {std::nanf(""), -std::nanf(""), INFINITY, -INFINITY})
    for (const std::size_t at : {std::size_t{0}, std::size_t{501}, std::size_t{1002}}) {
      auto copy = values;
      copy[at] = bad;
      CHECK(!all_finite(copy));
    }
  CHECK(all_finite({}));
}

TEST_CASE("the guard names the tensor" * test::once()) {
  Ranks ranks;
  Replica replica = make_replica("lenet", 2, Layout::kNhwc);
  GradientGuard guard(replica, ranks.exchange);
  const torch::Tensor images = torch::randn({2, 3, 32, 32});
  replica.network->forward(images).sum().backward();
  CHECK(guard.first_bad() == -1);
  guard.poison_next();
  replica.network->forward(images).sum().backward();
  REQUIRE(guard.first_bad() >= 0);
  // Autograd completes the last layer first: its bias or its weight.
  CHECK(replica.names[static_cast<std::size_t>(guard.first_bad())].rfind("fc3.", 0) == 0);
  guard.reset();
  CHECK(guard.first_bad() == -1);
}

TEST_CASE("rows of all ranks arrive on rank 0") {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  StepResult mine;
  mine.samples = 8;
  mine.measured.loss = 1.0 + ranks.rank;
  mine.measured[Phase::kIteration] = 0.5;
  mine.buckets = {{4, CollectiveKind::kAllReduce}};
  mine.measured[Phase::kWait] = 0.01 * ranks.rank;
  mine.measured.buckets = {{0.1, 0.2, 0.3, 0.25 + 0.001 * ranks.rank}};
  IterationRow row;
  const Verdict verdict = gather_rows(ranks.exchange, mine, 0.25, row);
  CHECK(verdict.bad_rank == -1);
  if (ranks.rank != 0) return;
  REQUIRE(row.ranks.size() == static_cast<std::size_t>(ranks.size));
  CHECK(row.samples == 8 * ranks.size);
  CHECK(row.buckets.size() == 1);
  for (int r = 0; r < ranks.size; ++r) {
    const RankIteration& rank = row.ranks[static_cast<std::size_t>(r)];
    CHECK(rank.loss == 1.0 + r);
    CHECK(rank.begin_s == 0.25);
    CHECK(rank[Phase::kWait] == 0.01 * r);
    REQUIRE(rank.buckets.size() == 1);
    CHECK(rank.buckets[0].ready_s == 0.1);
    CHECK(rank.buckets[0].start_s == 0.2);
    CHECK(rank.buckets[0].end_s == 0.3);
    CHECK(rank.buckets[0].arrival_s == 0.25 + 0.001 * r);
    CHECK(std::isnan(rank[Phase::kBackward]));
  }
}

TEST_CASE("a bad gradient or loss of any rank is every rank's verdict") {
  Ranks ranks;
  const int last = ranks.size - 1;
  StepResult mine;
  mine.measured.loss = 1;
  mine.bad_tensor = ranks.rank == last ? 3 : -1;
  IterationRow row;
  Verdict verdict = gather_rows(ranks.exchange, mine, 0, row);
  CHECK(verdict.bad_rank == last);
  CHECK(verdict.bad_tensor == 3);
  mine.bad_tensor = -1;
  mine.measured.loss = ranks.rank == last ? std::nan("") : 1;
  verdict = gather_rows(ranks.exchange, mine, 0, row);
  CHECK(verdict.bad_rank == last);
  CHECK(verdict.bad_tensor == -1);
}

TEST_CASE("one rank that requests a stop is enough, and the lowest is named") {
  Ranks ranks;
  const int last = ranks.size - 1;
  StepResult mine;
  mine.measured.loss = 1;
  mine.stop = ranks.rank == last ? StopReason::kUsr1 : StopReason::kNone;
  IterationRow row;
  Verdict verdict = gather_rows(ranks.exchange, mine, 0, row);
  CHECK(verdict.bad_rank == -1);
  CHECK(verdict.stop == StopReason::kUsr1);
  CHECK(verdict.stop_rank == last);
  verdict = agree_on_stop(ranks.exchange,
                          ranks.rank == last ? StopReason::kTimeLimit : StopReason::kTerm);
  CHECK(verdict.stop == (last == 0 ? StopReason::kTimeLimit : StopReason::kTerm));
  CHECK(verdict.stop_rank == 0);
  CHECK(agree_on_stop(ranks.exchange, StopReason::kNone).stop_rank == -1);
}

TEST_CASE("faults for tests are read strictly" * test::once()) {
  const Fault fault = parse_fault("nan@1:5");
  CHECK(fault.due(1, 5));
  CHECK(!fault.due(0, 5));
  CHECK(!parse_fault("").due(0, 0));
  for (const char* text : {"nan", "nan@1", "nan@x:1", "nan@1:-2", "boom@1:1", "nan@1:5x"})
    CHECK_THROWS_AS(parse_fault(text), Error);
}
