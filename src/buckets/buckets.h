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

}  // namespace gradsync
