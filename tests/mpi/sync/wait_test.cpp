// SPDX-License-Identifier: BSD-3-Clause
// Waiting for a late rank is neither communication nor compute, in every mode, whatever moves data.
#include <algorithm>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "mpi/ranks.h"
#include "mpi/short_training.h"
#include "sync/sync_mode.h"
#include "train/pipeline.h"

using namespace gradsync;
using gradsync::test::Ranks;
using gradsync::test::SmallSet;
using gradsync::test::Trained;

namespace {

constexpr std::size_t kFewIterations = 7, kLateIn = 4;
constexpr double kLate_s = 0.4;

struct Way {
  std::string mode;
  Overlap overlap;
  std::string transport;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const char* transport : {"mpi", "shm", "tcp-ring", "two-level"})
    for (const Mode& entry : kModes) {
      if (!entry.exchanges) continue;
      const std::string name(entry.name);
      all.push_back({name, Overlap::kBackward, transport});
      if (entry.defers && std::string(transport) != "shm")
        all.push_back({name, Overlap::kStep, transport});
    }
  return all;
}

/// The last rank comes late to one iteration.
Trained trained(const SmallSet& set, const Way& way) {
  Ranks ranks(way.transport);
  // Where calls are compared before they start, the ranks wait there.
  Exchange exchange(test::session(), ranks.transport, VerifyLevel::kOff);
  TrainOptions options = test::short_options(way.mode);
  options.overlap = way.overlap;
  options.local_steps = 2;  // so that there is an exchange in the iteration in question
  return test::train_shortly(
      exchange, {*set.data, nullptr, torch::kCPU}, options, kFewIterations, torch::kCPU,
      [&](GradientGuard&, std::int64_t iteration) {
        if (iteration == kLateIn && ranks.rank == ranks.size - 1)
          std::this_thread::sleep_for(std::chrono::duration<double>(kLate_s));
      });
}

void check_parts(const RankIteration& measured) {
  const double parts = measured[Phase::kCompute] + measured[Phase::kExposed] +
                       measured[Phase::kWait] + measured[Phase::kOther];
  CHECK(parts == doctest::Approx(measured[Phase::kIteration]).epsilon(1e-9));
  CHECK(measured[Phase::kHidden] + measured[Phase::kExposed] ==
        doctest::Approx(measured[Phase::kCommBusy]).epsilon(1e-9));
  CHECK(measured[Phase::kWait] >= 0);
  for (const BucketTimes& bucket : measured.buckets) {
    CHECK(bucket.start_s <= bucket.arrival_s);
    CHECK(bucket.arrival_s <= bucket.end_s);
  }
}

/// Of an all-reduce, unless there is a root.
CollectiveRecord record_of(double start_s, double end_s, int root = -1) {
  const auto kind = root < 0 ? CollectiveKind::kAllReduce : CollectiveKind::kBroadcast;
  return {kind, 4, root, start_s, start_s, end_s};
}

/// What a rank learns of made-up collectives, whose times count from the iteration's start.
std::vector<BucketTimes> learned(Exchange& exchange, std::vector<CollectiveRecord> records) {
  IterationTimer timer;
  timer.begin();
  const double begin_s = timer.first().host_s;
  for (CollectiveRecord& record : records)
    for (double* time_s : {&record.ready_s, &record.start_s, &record.end_s})
      *time_s += begin_s;
  timer.set_collectives(records);
  timer.stop({});
  share_arrivals(exchange, timer, /*begin_s=*/0);
  return timer.result().buckets;
}

/// Of the iteration to which the last rank comes late and of the next one: with what travels over
/// steps, the others notice one iteration later.
struct LateTimes {
  double wait_s = 0, busy_s = 0;
  double usual_busy_s = 0;  ///< of the slowest two other iterations together
};

LateTimes late_times(const Trained& run) {
  const auto& late = run.iterations[kLateIn].measured;
  const auto& next = run.iterations[kLateIn + 1].measured;
  double slowest_s = 0;
  for (std::size_t i = 0; i < run.iterations.size(); ++i)
    if (i != kLateIn && i != kLateIn + 1)
      slowest_s = std::max(slowest_s, run.iterations[i].measured[Phase::kCommBusy]);
  return {late[Phase::kWait] + next[Phase::kWait], late[Phase::kCommBusy] + next[Phase::kCommBusy],
          2 * slowest_s};
}

bool as_expected(const LateTimes& times) {
  const int rank = test::session().rank(), size = test::session().size();
  if (size == 1) return true;
  const bool waited = times.wait_s > kLate_s / 2;
  return waited == (rank != size - 1) && times.busy_s < times.usual_busy_s + kLate_s / 2;
}

/// Collective.
bool as_expected_on_all(const LateTimes& times) {
  int mine = as_expected(times), all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, test::session().world());
  return all != 0;
}

}  // namespace

TEST_CASE("the parts of every iteration sum to it, and a late rank is what the others wait for") {
  const SmallSet set;
  for (const Way& way : ways()) {
    CAPTURE(way.mode);
    CAPTURE(static_cast<int>(way.overlap));
    CAPTURE(way.transport);
    LateTimes times;
    // A busy machine can delay a rank by as much as the test does: ten tries.
    for (int left = 10; left > 0; --left) {
      const Trained run = trained(set, way);
      REQUIRE(run.iterations.size() == kFewIterations);
      for (const FinishedIteration& step : run.iterations)
        check_parts(step.measured);
      times = late_times(run);
      if (as_expected_on_all(times)) break;
    }
    CAPTURE(times.wait_s);
    CAPTURE(times.busy_s);
    CAPTURE(times.usual_busy_s);
    CHECK(as_expected(times));
  }
}

TEST_CASE("one rank exchanges nothing, not even with itself" * test::once()) {
  const SmallSet set;
  for (const FinishedIteration& step :
       trained(set, {"gather-scatter", Overlap::kBackward, "mpi"}).iterations)
    CHECK(step.measured[Phase::kExposed] == 0);
}

TEST_CASE("an all-reduce waits for the last of all ranks") {
  Ranks ranks;
  const double rank = ranks.rank, last = ranks.size - 1;
  const auto times = learned(ranks.exchange, {record_of(1 + rank, 20), record_of(30, 40 + rank)});
  CHECK(times[0].arrival_s == doctest::Approx(1 + last));
  CHECK(times[1].arrival_s == doctest::Approx(30));
}

TEST_CASE("with a root a rank waits for those that came before it left") {
  Ranks ranks;
  const double rank = ranks.rank, last = ranks.size - 1;
  const bool root = ranks.rank == 0;
  // All stay until the last one is there; only the root does; nobody does, and the root is late.
  const auto times = learned(
      ranks.exchange, {record_of(1 + rank, 20, 0), record_of(21 + rank, root ? 40 : 21.5 + rank, 0),
                       record_of(root ? 60 : 50, root ? 70 : 62, 0)});
  CHECK(times[0].arrival_s == doctest::Approx(1 + last));
  CHECK(times[1].arrival_s == doctest::Approx(root ? 21 + last : 21 + rank));
  CHECK(times[2].arrival_s == doctest::Approx(60));
}

TEST_CASE("what was posted says itself when the last rank came") {
  Ranks ranks;
  IterationTimer timer;
  timer.begin();
  const double begin_s = timer.first().host_s;
  CollectiveRecord record = record_of(begin_s, begin_s + 0.9);
  record.posted = PostedTimes{{begin_s + 0.2, begin_s + 0.3}, {begin_s + 0.6, begin_s + 0.9}};
  timer.set_collectives({record});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  timer.stop({});
  share_arrivals(ranks.exchange, timer, 0);
  const RankIteration result = timer.result();
  CHECK(result.buckets[0].arrival_s == doctest::Approx(0.6));
  CHECK(result[Phase::kExposed] == doctest::Approx(0.4));  // its own part, and the last one
  CHECK(result[Phase::kWait] == doctest::Approx(0.5));
}
