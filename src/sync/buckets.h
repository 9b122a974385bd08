#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradsync {

/// The sizes that PyTorch's DDP takes.
inline constexpr std::int64_t kDefaultFirstBucketBytes = 1 << 20;
inline constexpr std::int64_t kDefaultBucketCapBytes = 25 << 20;

/// Parameters at positions [first, last) of an order, exchanged as one message.
struct Bucket {
  std::size_t first = 0, last = 0;
};

/// Cuts an order of parameters into buckets: one closes when it has reached its limit, the first
/// one at `first_bucket_bytes`, the others at `bucket_cap_bytes` (the rule of PyTorch's DDP, Li et
/// al., 2020). `bytes` holds the size of each position. Every position is in exactly one bucket.
std::vector<Bucket> cut_into_buckets(const std::vector<std::int64_t>& bytes,
                                     std::int64_t first_bucket_bytes,
                                     std::int64_t bucket_cap_bytes);

/// A message that one channel is to send.
struct PlannedMessage {
  double ready_s = 0;
  std::int64_t bytes = 0;
  std::size_t urgency = 0;  ///< what is needed first has most
};

/// The order in which a channel of `s_per_byte` sends them if, whenever it is free, it takes the
/// most urgent of those that are ready, and of equally urgent ones the first; where none is ready
/// it waits for the next. Messages are not cut, so that is priority scheduling with preemption at
/// their ends (as in Peng et al., "A generic communication scheduler for distributed DNN training
/// acceleration", SOSP 2019), planned ahead: ranks that follow one plan need not agree on the way.
/// Each index once.
std::vector<std::size_t> most_urgent_first(const std::vector<PlannedMessage>& messages,
                                           double s_per_byte);

}  // namespace gradsync
