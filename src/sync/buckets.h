// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "record/run.h"

namespace gradsync {

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

// The exchange of one iteration, replayed: pure functions over times in seconds since any moment.

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

/// The gradients of a backward pass, in the order of the exchange.
struct GradientTimeline {
  std::vector<std::int64_t> bytes;  ///< of each, as float32
  std::vector<double> ready_s;      ///< since any moment; the last one ends the backward pass

  std::int64_t total_bytes() const;
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

/// Chooses first bucket and cap with the least predicted exposed time. Among pairs that expose at
/// most half a percent of the backward pass more it takes the one with the fewest buckets, since
/// each costs a little that the model does not know. Pairs whose first bucket exceeds the cap are
/// used only if there is no other. Requires a size each.
BucketAdvice best_buckets(const GradientTimeline& gradients, const AllReduceTime& time_s,
                          const std::vector<std::int64_t>& first_sizes,
                          const std::vector<std::int64_t>& caps);

}  // namespace gradsync
