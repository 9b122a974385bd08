// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include "sync/buckets.h"

using namespace gradsync;

namespace {

constexpr std::int64_t kKib = 1 << 10, kMib = 1 << 20;

/// A millisecond, and one for each MiB.
double link_s(std::int64_t bytes) {
  return 1e-3 + 1e-3 * static_cast<double>(bytes) / kMib;
}

/// Four gradients of 1 MiB, 2 ms apart.
GradientTimeline four() {
  return {{kMib, kMib, kMib, kMib}, {0, 2e-3, 4e-3, 6e-3}};
}

}  // namespace

TEST_CASE("bucket advice: a replay by hand") {
  // One bucket: all of it follows the last gradient, 1 + 4 ms.
  const BucketAdvice whole = advice_of(four(), link_s, 4 * kMib, 4 * kMib);
  CHECK(whole.buckets == 1);
  CHECK(whole.exposed_s == doctest::Approx(5e-3));
  // Four: each takes the 2 ms in which the next one becomes ready.
  const BucketAdvice four_buckets = advice_of(four(), link_s, kMib, kMib);
  CHECK(four_buckets.buckets == 4);
  CHECK(four_buckets.exposed_s == doctest::Approx(2e-3));
  // 1 and 3: from 0 to 2 ms, and 4 ms from 6 ms on.
  CHECK(advice_of(four(), link_s, kMib, 3 * kMib).exposed_s == doctest::Approx(4e-3));
  // A link half as fast is never free: 4 · 4 ms from 0 on, 10 of them after the last gradient.
  const auto slow_s = [](std::int64_t bytes) { return 2 * link_s(bytes); };
  CHECK(advice_of(four(), slow_s, kMib, kMib).exposed_s == doctest::Approx(10e-3));
}

TEST_CASE("bucket advice: a gradient that is late holds back those behind it") {
  const GradientTimeline late{{kMib, kMib}, {5e-3, 1e-3}};
  CHECK(advice_of(late, link_s, kMib, kMib).exposed_s == doctest::Approx(4e-3));
}

TEST_CASE("bucket advice: the sizes tried reach from 64 KiB to all gradients") {
  CHECK(bucket_ladder(1).size() == 1);
  const auto sizes = bucket_ladder(3 * kMib);
  CHECK(sizes.front() == 64 * kKib);
  CHECK(sizes.back() == 4 * kMib);
  CHECK(sizes.size() == 7);
}

TEST_CASE("bucket advice: latency asks for few buckets, bandwidth for a small last one") {
  const auto ladder = bucket_ladder(4 * kMib);
  const auto latency = [](std::int64_t) { return 10e-3; };
  const BucketAdvice few = best_buckets(four(), latency, ladder, ladder);
  CHECK(few.buckets == 1);
  CHECK(few.exposed_s == doctest::Approx(10e-3));
  const auto bandwidth = [](std::int64_t bytes) {
    return 2e-3 * static_cast<double>(bytes) / kMib;
  };
  const BucketAdvice many = best_buckets(four(), bandwidth, ladder, ladder);
  CHECK(many.exposed_s == doctest::Approx(2e-3));
  CHECK(many.bucket_cap_bytes <= kMib);
}

TEST_CASE(
    "bucket advice: of cuts that are as good the one of fewer buckets, given sizes are kept") {
  // Ready together: only the sum counts, and it is the same for each cut.
  const GradientTimeline together{{kMib, kMib, kMib, kMib}, {0, 0, 0, 0}};
  const auto bandwidth = [](std::int64_t bytes) { return 1e-9 * static_cast<double>(bytes); };
  CHECK(
      best_buckets(together, bandwidth, bucket_ladder(4 * kMib), bucket_ladder(4 * kMib)).buckets ==
      1);
  const BucketAdvice given = best_buckets(together, bandwidth, {kMib}, bucket_ladder(4 * kMib));
  CHECK(given.first_bucket_bytes == kMib);
  CHECK(given.buckets == 2);
}

using Order = std::vector<std::size_t>;

TEST_CASE("message order: without a queue messages go as they become ready") {
  CHECK(most_urgent_first({}, 1).empty());
  CHECK(most_urgent_first({{0, 1, 0}, {2, 1, 1}, {4, 1, 2}}, 1) == Order{0, 1, 2});
}

TEST_CASE("message order: what is urgent overtakes what is ready, but for the message under way") {
  // A second a byte. 0 goes from 0 to 3; by then 1 (of the same urgency) and 2 are ready.
  CHECK(most_urgent_first({{0, 3, 0}, {0, 3, 0}, {1, 1, 5}}, 1) == Order{0, 2, 1});
  // Ready at that very moment is ready.
  CHECK(most_urgent_first({{0, 3, 0}, {0, 3, 0}, {3, 1, 5}}, 1) == Order{0, 2, 1});
  // Ready a moment too late: 1 is already under way.
  CHECK(most_urgent_first({{0, 3, 0}, {0, 3, 0}, {3.5, 1, 5}}, 1) == Order{0, 1, 2});
}

TEST_CASE("message order: on a fast channel nothing is overtaken, whatever is urgent") {
  CHECK(most_urgent_first({{0, 9, 0}, {1, 9, 1}, {2, 9, 2}}, 1e-3) == Order{0, 1, 2});
}

TEST_CASE(
    "message order: on a slow channel the last layers' gradients wait for the first layers'") {
  // Four layers a second apart, ten seconds a message: after the first one all are ready.
  CHECK(most_urgent_first({{0, 1, 0}, {1, 1, 1}, {2, 1, 2}, {3, 1, 3}}, 10) == Order{0, 3, 2, 1});
}

TEST_CASE("message order: each message once, though none is ready at the start") {
  CHECK(most_urgent_first({{5, 1, 0}, {4, 1, 1}}, 1) == Order{1, 0});
}
