// SPDX-License-Identifier: BSD-3-Clause
#include "sync/buckets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

std::vector<Bucket> cut_into_buckets(const std::vector<std::int64_t>& bytes,
                                     std::int64_t first_bucket_bytes,
                                     std::int64_t bucket_cap_bytes) {
  std::vector<Bucket> buckets;
  std::size_t first = 0;
  std::int64_t filled = 0;
  for (std::size_t position = 0; position < bytes.size(); ++position) {
    filled += bytes[position];
    const std::int64_t limit = buckets.empty() ? first_bucket_bytes : bucket_cap_bytes;
    if (filled < limit && position + 1 < bytes.size()) continue;
    buckets.push_back({first, position + 1});
    first = position + 1;
    filled = 0;
  }
  return buckets;
}

namespace {

/// The index in `left` of what is sent at `now_s`, or of what is ready next.
std::size_t next_of(const std::vector<PlannedMessage>& messages,
                    const std::vector<std::size_t>& left, double now_s) {
  const auto better = [&](std::size_t a, std::size_t b) {
    const PlannedMessage &one = messages[a], &other = messages[b];
    const bool ready = one.ready_s <= now_s, other_ready = other.ready_s <= now_s;
    if (ready != other_ready) return ready;
    if (!ready) return one.ready_s < other.ready_s;
    return one.urgency > other.urgency;
  };
  return static_cast<std::size_t>(std::ranges::min_element(left, better) - left.begin());
}

}  // namespace

std::vector<std::size_t> most_urgent_first(const std::vector<PlannedMessage>& messages,
                                           double s_per_byte) {
  std::vector<std::size_t> left(messages.size()), order;
  for (std::size_t i = 0; i < left.size(); ++i)
    left[i] = i;
  double now_s = 0;
  while (!left.empty()) {
    const auto at = left.begin() + static_cast<std::ptrdiff_t>(next_of(messages, left, now_s));
    const PlannedMessage& message = messages[*at];
    now_s = std::max(now_s, message.ready_s) + s_per_byte * static_cast<double>(message.bytes);
    order.push_back(*at);
    left.erase(at);
  }
  return order;
}

namespace {

constexpr double kMostBuckets = 1e6;

/// Like std::max, but NaN stays NaN: what was not measured must not look like no wait.
double later(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNotMeasured : std::max(a, b);
}

/// Share of compute that is lost beside a message.
double taken_share(const BucketMessage& message, double time_s, double contention_s_per_byte) {
  if (contention_s_per_byte == 0 || !(time_s > 0)) return 0;
  return std::min(kMostContention, contention_s_per_byte * message.bytes / time_s);
}

/// When the bytes up to a position of the exchange are ready.
class Readiness {
 public:
  Readiness(const std::vector<BucketMessage>& messages, double backward_begin_s)
      : bytes_{0}, ready_s_{backward_begin_s} {
    for (const BucketMessage& message : messages) {
      if (message.kind != CollectiveKind::kAllReduce || !(message.bytes > 0)) continue;
      bytes_.push_back(bytes_.back() + message.bytes);
      // A bucket is exchanged in its turn even if its gradients came before those of an earlier
      // one.
      ready_s_.push_back(later(ready_s_.back(), message.ready_s));
    }
  }

  double total_bytes() const { return bytes_.back(); }

  double at(double position) const {
    const auto above = std::lower_bound(bytes_.begin() + 1, bytes_.end() - 1, position);
    const auto i = static_cast<std::size_t>(above - bytes_.begin());
    const double part = (position - bytes_[i - 1]) / (bytes_[i] - bytes_[i - 1]);
    return ready_s_[i - 1] + part * (ready_s_[i] - ready_s_[i - 1]);
  }

 private:
  std::vector<double> bytes_, ready_s_;
};

}  // namespace

double BucketReplay::bytes_beside_compute(const std::vector<BucketMessage>& messages) const {
  double bytes = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const double time_s = end_s[i] - start_s[i];
    const double beside_s = std::clamp(compute_end_s - start_s[i], 0.0, time_s);
    bytes += time_s > 0 ? messages[i].bytes * beside_s / time_s : 0;
  }
  return bytes;
}

BucketReplay replay_overlapped(const std::vector<BucketMessage>& messages, const MessageCost& cost,
                               double compute_end_s, double contention_s_per_byte) {
  BucketReplay replay;
  double free_s = -std::numeric_limits<double>::infinity(), delay_s = 0;
  std::optional<double> taken_s;
  for (const BucketMessage& message : messages) {
    const double time_s = cost(message);
    const double start_s = later(message.ready_s + delay_s, free_s);
    const double share = taken_share(message, time_s, contention_s_per_byte);
    // Compute that is not done when the message begins may be done before it ends.
    const double left_s = compute_end_s + delay_s - start_s;
    if (!taken_s && left_s <= (1 - share) * time_s)
      taken_s = delay_s + std::max(0.0, left_s) * share / (1 - share);
    if (share > 0) delay_s += share * time_s;
    free_s = start_s + time_s;
    replay.start_s.push_back(start_s);
    replay.end_s.push_back(free_s);
    replay.busy_s += time_s;
  }
  replay.taken_s = taken_s.value_or(delay_s);
  replay.compute_end_s = compute_end_s + replay.taken_s;
  replay.exposed_s = messages.empty() ? 0 : later(0, free_s - replay.compute_end_s);
  return replay;
}

double undelayed_s(const std::vector<BucketMessage>& messages, const BucketReplay& replay,
                   double contention_s_per_byte, double time_s) {
  double delay_s = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const double took_s = replay.end_s[i] - replay.start_s[i];
    const double within_s = std::clamp(time_s - replay.start_s[i], 0.0, took_s);
    delay_s += within_s * taken_share(messages[i], took_s, contention_s_per_byte);
  }
  return time_s - delay_s;
}

BucketReplay replay_blocking(const std::vector<BucketMessage>& messages, const MessageCost& cost,
                             double compute_end_s) {
  std::vector<BucketMessage> held = messages;
  for (BucketMessage& message : held)
    message.ready_s = compute_end_s;
  return replay_overlapped(held, cost, compute_end_s);
}

std::vector<BucketMessage> rebucket(const std::vector<BucketMessage>& messages,
                                    double backward_begin_s, double first_bytes, double cap_bytes) {
  if (!(first_bytes >= 1) || !(cap_bytes >= 1))
    throw Error(ExitCode::kInternal, "rebucket: a bucket of less than one byte");
  const Readiness readiness(messages, backward_begin_s);
  if (readiness.total_bytes() / cap_bytes > kMostBuckets)
    throw Error(ExitCode::kBadData,
                fmt::format("{:.3g} bytes in buckets of {:.3g} are more than {:.0e} buckets",
                            readiness.total_bytes(), cap_bytes, kMostBuckets),
                "choose a larger bucket-cap");
  std::vector<BucketMessage> cut;
  for (double begin = 0; begin < readiness.total_bytes();) {
    const double limit = cut.empty() ? first_bytes : cap_bytes;
    const double end = std::min(begin + limit, readiness.total_bytes());
    cut.push_back({readiness.at(end), end - begin, CollectiveKind::kAllReduce});
    begin = end;
  }
  return cut;
}

namespace {

constexpr std::int64_t kSmallest = 64 << 10;
constexpr double kAsGood = 0.005;  ///< of the backward pass

/// From the first gradient to the last.
double backward_s(const GradientTimeline& gradients) {
  const auto [first, last] = std::ranges::minmax_element(gradients.ready_s);
  return first == gradients.ready_s.end() ? 0 : *last - *first;
}

}  // namespace

std::int64_t GradientTimeline::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

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
  if (!std::ranges::all_of(all, too_large)) std::erase_if(all, too_large);
  const auto less_exposed = [](const BucketAdvice& a, const BucketAdvice& b) {
    return a.exposed_s < b.exposed_s;
  };
  const double least_s = std::ranges::min_element(all, less_exposed)->exposed_s;
  const double allowed_s = least_s + kAsGood * backward_s(gradients);
  std::erase_if(all, [&](const BucketAdvice& one) { return one.exposed_s > allowed_s; });
  return *std::ranges::min_element(
      all, [](const BucketAdvice& a, const BucketAdvice& b) { return a.buckets < b.buckets; });
}

}  // namespace gradsync
