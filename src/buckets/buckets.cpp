#include "buckets/buckets.h"

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

}  // namespace gradsync
