#include "sync/bucket_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

namespace {

constexpr double kMostBuckets = 1e6;

/// Like std::max, but NaN stays NaN: what was not measured must not look like no wait.
double later(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNotMeasured : std::max(a, b);
}

/// Of compute beside a message: what it loses.
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

}  // namespace gradsync
