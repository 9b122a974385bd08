#include "sync/buckets.h"

#include <algorithm>

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
  return static_cast<std::size_t>(std::min_element(left.begin(), left.end(), better) -
                                  left.begin());
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

}  // namespace gradsync
