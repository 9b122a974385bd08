#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gradsync {

/// The gradients of a backward pass, in the order of the exchange.
struct GradientTimeline {
  std::vector<std::int64_t> bytes;  ///< of each, as float32
  std::vector<double> ready_s;      ///< since any moment; the last one ends the backward pass
};

/// Seconds that the all-reduce of so many bytes of float32 gradients takes, whatever they travel
/// as.
using AllReduceTime = std::function<double(std::int64_t bytes)>;

/// How gradients are cut into buckets (cut_into_buckets), and what that is predicted to cost.
struct BucketAdvice {
  std::int64_t first_bucket_bytes = 0, bucket_cap_bytes = 0;
  std::size_t buckets = 0;
  double exposed_s = 0;  ///< what the backward pass waits for after its last gradient
};

/// Replays the cut on one channel: a bucket starts when all its gradients are ready and the bucket
/// before has ended (Li et al., VLDB 2020; the model of docs/numbers.md).
BucketAdvice advice_of(const GradientTimeline& gradients, const AllReduceTime& time_s,
                       std::int64_t first_bucket_bytes, std::int64_t bucket_cap_bytes);

/// The sizes tried for a cap or a first bucket: 64 KiB and its doubles, up to the first that holds
/// all gradients.
std::vector<std::int64_t> bucket_ladder(std::int64_t gradient_bytes);

/// Of all pairs of the sizes given whose first bucket is at most the cap (of all, if none is), that
/// which exposes least; of those that expose at most half a percent of the backward pass more, the
/// one of the fewest buckets, since each costs a little that the model does not know. Requires a
/// size each.
BucketAdvice best_buckets(const GradientTimeline& gradients, const AllReduceTime& time_s,
                          const std::vector<std::int64_t>& first_sizes,
                          const std::vector<std::int64_t>& caps);

}  // namespace gradsync
