#include "sync/bucket_advice.h"

#include <algorithm>
#include <limits>

#include "sync/bucket_replay.h"
#include "sync/buckets.h"

namespace gradsync {

namespace {

constexpr std::int64_t kSmallest = 64 << 10;
constexpr double kAsGood = 0.005;  ///< of the backward pass

/// From the first gradient to the last.
double backward_s(const GradientTimeline& gradients) {
  const auto [first, last] =
      std::minmax_element(gradients.ready_s.begin(), gradients.ready_s.end());
  return first == gradients.ready_s.end() ? 0 : *last - *first;
}

}  // namespace

BucketAdvice advice_of(const GradientTimeline& gradients, const AllReduceTime& time_s,
                       std::int64_t first_bucket_bytes, std::int64_t bucket_cap_bytes) {
  const auto buckets = cut_into_buckets(gradients.bytes, first_bucket_bytes, bucket_cap_bytes);
  std::vector<BucketMessage> messages;
  double ready_s = -std::numeric_limits<double>::infinity();
  for (const Bucket& bucket : buckets) {
    std::int64_t bytes = 0;
    for (std::size_t i = bucket.first; i < bucket.last; ++i) {
      bytes += gradients.bytes[i];
      ready_s = std::max(ready_s, gradients.ready_s[i]);
    }
    messages.push_back({ready_s, static_cast<double>(bytes)});
  }
  const auto cost = [&](const BucketMessage& message) {
    return time_s(static_cast<std::int64_t>(message.bytes));
  };
  return {first_bucket_bytes, bucket_cap_bytes, buckets.size(),
          replay_overlapped(messages, cost, ready_s).exposed_s};
}

std::vector<std::int64_t> bucket_ladder(std::int64_t gradient_bytes) {
  std::vector<std::int64_t> sizes = {kSmallest};
  while (sizes.back() < gradient_bytes)
    sizes.push_back(2 * sizes.back());
  return sizes;
}

BucketAdvice best_buckets(const GradientTimeline& gradients, const AllReduceTime& time_s,
                          const std::vector<std::int64_t>& first_sizes,
                          const std::vector<std::int64_t>& caps) {
  std::vector<BucketAdvice> all;
  for (const std::int64_t cap : caps)
    for (const std::int64_t first : first_sizes)
      all.push_back(advice_of(gradients, time_s, first, cap));
  const auto too_large = [](const BucketAdvice& one) {
    return one.first_bucket_bytes > one.bucket_cap_bytes;
  };
  if (!std::all_of(all.begin(), all.end(), too_large)) std::erase_if(all, too_large);
  const auto less_exposed = [](const BucketAdvice& a, const BucketAdvice& b) {
    return a.exposed_s < b.exposed_s;
  };
  const double least_s = std::min_element(all.begin(), all.end(), less_exposed)->exposed_s;
  const double allowed_s = least_s + kAsGood * backward_s(gradients);
  std::erase_if(all, [&](const BucketAdvice& one) { return one.exposed_s > allowed_s; });
  return *std::min_element(
      all.begin(), all.end(),
      [](const BucketAdvice& a, const BucketAdvice& b) { return a.buckets < b.buckets; });
}

}  // namespace gradsync
