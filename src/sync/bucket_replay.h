#pragma once

#include <functional>
#include <vector>

#include "record/run.h"

/// The exchange of one iteration, replayed: pure functions over times in seconds since any moment.
namespace gradsync {

/// One collective that the iteration issues, in order.
struct BucketMessage {
  double ready_s = kNotMeasured;  ///< its last gradient is there
  double bytes = 0;
  CollectiveKind kind = CollectiveKind::kAllReduce;
};

/// Seconds that one message takes.
using MessageCost = std::function<double(const BucketMessage&)>;

struct BucketReplay {
  std::vector<double> start_s, end_s;  ///< of each message
  double busy_s = 0;                   ///< the sum of their costs
  double taken_s = 0;                  ///< what messages take from compute until it ends
  double compute_end_s = 0;            ///< with `taken_s`
  double exposed_s = 0;                ///< what the iteration waits for after its backward pass

  /// Bytes that travel before `compute_end_s`; those of a message spread evenly over its time.
  double bytes_beside_compute(const std::vector<BucketMessage>& messages) const;
};

/// One channel, messages in order: start_i = max(ready_i, end_{i−1}), end_i = start_i + cost_i,
/// exposed = max(0, end_last − end of compute). NaN costs or ready times give NaN.
///
/// Ready times and `compute_end_s` are of compute that is left alone. A byte that travels beside
/// compute takes `contention_s_per_byte` from it (the overhead o of LogGP; Alexandrov et al.,
/// SPAA 1995), and what compute makes ready after it is so much later. Compute never stops: a
/// message takes at most kMostContention of its own time.
inline constexpr double kMostContention = 0.95;
BucketReplay replay_overlapped(const std::vector<BucketMessage>& messages, const MessageCost& cost,
                               double compute_end_s, double contention_s_per_byte = 0);

/// What compute alone would have done by `time_s` of the replay of these messages: the inverse of
/// the delays that `replay_overlapped` adds.
double undelayed_s(const std::vector<BucketMessage>& messages, const BucketReplay& replay,
                   double contention_s_per_byte, double time_s);

/// Nothing is hidden: messages one after the other once compute has ended; exposed = Σ cost.
BucketReplay replay_blocking(const std::vector<BucketMessage>& messages, const MessageCost& cost,
                             double compute_end_s);

/// The same bytes in other buckets: a first bucket of `first_bytes`, then buckets of `cap_bytes`,
/// the last with what is left; cuts may fall inside a parameter, which the real rule does not
/// allow. The bytes of a recorded bucket are taken to become ready evenly between the ready time of
/// the bucket before (the first: `backward_begin_s`) and its own; a new bucket is ready with its
/// last byte. Requires sizes of at least one byte (Error kInternal otherwise). More than a million
/// buckets are refused (kBadData). Only all-reduces are cut; other kinds are left out.
std::vector<BucketMessage> rebucket(const std::vector<BucketMessage>& messages,
                                    double backward_begin_s, double first_bytes, double cap_bytes);

}  // namespace gradsync
