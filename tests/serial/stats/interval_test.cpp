// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>
#include <thread>

#include <doctest/doctest.h>

#include "base/error.h"
#include "serial/expect_error.h"
#include "stats/clock.h"
#include "stats/interval_set.h"

using namespace gradsync;

namespace {

using Pieces = std::vector<Interval>;

}  // namespace

TEST_CASE("interval set: the union is sorted, disjoint and without empty pieces") {
  CHECK(IntervalSet().measure_s() == 0);
  CHECK(IntervalSet(Pieces{}).empty());
  CHECK(IntervalSet({{2, 2}}).empty());
  CHECK(IntervalSet({{5, 7}, {1, 2}}).pieces() == Pieces{{1, 2}, {5, 7}});
  CHECK(IntervalSet({{1, 3}, {2, 4}}).pieces() == Pieces{{1, 4}});
  CHECK(IntervalSet({{1, 9}, {2, 4}}).pieces() == Pieces{{1, 9}});
  CHECK(IntervalSet({{1, 2}, {2, 3}}).pieces() == Pieces{{1, 3}});
  CHECK(IntervalSet({{1, 2}, {4, 8}, {1.5, 2.5}}).measure_s() == 5.5);
}

TEST_CASE("interval set: intersection") {
  const IntervalSet a({{0, 4}, {6, 10}, {12, 13}});
  const IntervalSet b({{3, 7}, {8, 9}, {10, 12}});
  CHECK(a.intersection(b).pieces() == Pieces{{3, 4}, {6, 7}, {8, 9}});
  CHECK(b.intersection(a).pieces() == a.intersection(b).pieces());
  CHECK(a.intersection(IntervalSet()).empty());
  CHECK(a.intersection(a).pieces() == a.pieces());
}

TEST_CASE("interval set: difference") {
  const IntervalSet a({{0, 4}, {6, 10}, {12, 13}});
  const IntervalSet b({{3, 7}, {8, 9}, {10, 12}});
  CHECK(a.difference(b).pieces() == Pieces{{0, 3}, {7, 8}, {9, 10}, {12, 13}});
  CHECK(b.difference(a).pieces() == Pieces{{4, 6}, {10, 12}});
  CHECK(a.difference(a).empty());
  CHECK(a.difference(IntervalSet()).pieces() == a.pieces());
  CHECK(IntervalSet().difference(a).empty());
  CHECK(IntervalSet({{0, 10}}).difference(IntervalSet({{2, 3}, {5, 6}})).pieces() ==
        Pieces{{0, 2}, {3, 5}, {6, 10}});
  // One cut that covers the end of one piece and the begin of the next.
  CHECK(IntervalSet({{0, 2}, {3, 5}}).difference(IntervalSet({{1, 4}})).pieces() ==
        Pieces{{0, 1}, {4, 5}});
}

TEST_CASE("interval set: a bound that is not finite, or a negative length, is an error") {
  CHECK_THROWS_AS(IntervalSet({{kNan, 1}}), Error);
  CHECK_THROWS_AS(IntervalSet({{0, kNan}}), Error);
  CHECK_THROWS_AS(IntervalSet({{0, kInfinity}}), Error);
  CHECK_THROWS_AS(IntervalSet({{-kInfinity, 0}}), Error);
  CHECK_THROWS_AS(IntervalSet({{2, 1}}), Error);
}

TEST_CASE("split: no communication, no compute, nothing at all") {
  auto split = split_iteration({{0, 3}}, {}, {}, 4);
  CHECK(split.compute_s == 3);
  CHECK(split.comm_busy_s == 0);
  CHECK(split.other_s == 1);

  split = split_iteration({}, {{1, 3}}, {}, 4);
  CHECK(split.exposed_s == 2);
  CHECK(split.hidden_s == 0);
  CHECK(split.other_s == 2);

  split = split_iteration({}, {}, {}, 4);
  CHECK(split.other_s == 4);
  CHECK(split_iteration({{0, 1}}, {{0, 1}}, {}, 0).compute_s == 0);
}

TEST_CASE("split: blocking exchange after backward") {
  // forward 0-2, backward 2-6, all-reduce 6-9, optimizer 9-10, then 1 s of nothing
  const auto split = split_iteration({{0, 2}, {2, 6}, {9, 10}}, {{6, 9}}, {}, 11);
  CHECK(split.compute_s == 7);
  CHECK(split.comm_busy_s == 3);
  CHECK(split.hidden_s == 0);
  CHECK(split.exposed_s == 3);
  CHECK(split.other_s == 1);
}

TEST_CASE("split: buckets beside backward, overlapping each other and the end of compute") {
  // compute 1-6 and 9-10; buckets 3-5, 4-7 (union 3-7) and 7.5-8; W = 10
  const auto split = split_iteration({{1, 6}, {9, 10}}, {{3, 5}, {4, 7}, {7.5, 8}}, {}, 10);
  CHECK(split.compute_s == 6);
  CHECK(split.comm_busy_s == 4.5);
  CHECK(split.hidden_s == 3);
  CHECK(split.exposed_s == 1.5);
  CHECK(split.other_s == 2.5);
  CHECK(split.compute_s + split.exposed_s + split.other_s == 10);
  CHECK(split.hidden_s + split.exposed_s == split.comm_busy_s);
}

TEST_CASE("split: waiting for a late rank is neither communication nor what compute hides") {
  // compute 0-4 and 9-10; a rank is waited for from 2 on, data moves 6-8 and 3-3.5; W = 10
  const auto split = split_iteration({{0, 4}, {9, 10}}, {{6, 8}, {3, 3.5}}, {{2, 6}, {7, 7.5}}, 10);
  CHECK(split.compute_s == 5);
  CHECK(split.comm_busy_s == 2.5);
  CHECK(split.hidden_s == 0.5);
  CHECK(split.exposed_s == 2);
  CHECK(split.wait_s == 2);
  CHECK(split.other_s == 1);
  CHECK(split_iteration({}, {}, {{-1, 12}}, 10).wait_s == 10);
}

TEST_CASE("split: what lies outside the iteration is clipped") {
  const auto split = split_iteration({{-1, 2}, {8, 12}}, {{-3, -2}, {1, 3}, {9, 20}}, {}, 10);
  CHECK(split.compute_s == 4);
  CHECK(split.comm_busy_s == 3);
  CHECK(split.hidden_s == 2);
  CHECK(split.exposed_s == 1);
  CHECK(split.other_s == 5);
}

TEST_CASE("split: bad intervals and bad lengths are errors") {
  CHECK_THROWS_AS(split_iteration({{0, kNan}}, {}, {}, 1), Error);
  CHECK_THROWS_AS(split_iteration({}, {{1, 0}}, {}, 1), Error);
  CHECK_THROWS_AS(split_iteration({}, {}, {}, kNan), Error);
  CHECK_THROWS_AS(split_iteration({}, {}, {}, -1), Error);
}

TEST_CASE("stopwatch: goes forward, and a restart loses no time") {
  gradsync::Stopwatch watch;
  const double begin_s = watch.begin_s();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const double first_s = watch.restart_s();
  CHECK(first_s >= 0.002);
  CHECK(watch.begin_s() == doctest::Approx(begin_s + first_s));
  CHECK(watch.elapsed_s() >= 0);
}
