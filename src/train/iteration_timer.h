// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <vector>

#include "exchange/exchange.h"
#include "machine/host.h"
#include "machine/lane.h"
#include "record/run.h"
#include "stats/clock.h"
#include "stats/interval_set.h"

namespace gradsync {

/// Collects the moments of one iteration of this rank, and turns them into what is recorded once
/// all of them have come. Without a lane they are of this rank's steady clock, else of the lane's
/// compute stream.
class IterationTimer {
 public:
  /// Without `stamping` nothing but the length of the iteration is measured.
  explicit IterationTimer(bool stamping = true, DeviceLane* lane = nullptr)
      : stamping_(stamping), lane_(lane) {}

  void begin();

  /// Adds its own lifetime to `phase`, and to the compute intervals unless the phase is kData; on a
  /// device the phase is a range of profilers, too.
  class Scope {
   public:
    Scope(IterationTimer& timer, Phase phase)
        : timer_(timer), phase_(phase), range_(timer.range(phase)) {}
    ~Scope() { timer_.add(phase_, {begin_, timer_.stamp()}); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    IterationTimer& timer_;
    Phase phase_;
    ProfilerRange range_;
    Moment begin_ = timer_.stamp();
  };

  /// The phase as profilers see it, whether or not it is stamped.
  ProfilerRange range(Phase phase) const { return {lane_, phase_name(phase)}; }

  /// Now; nothing without stamping.
  Moment stamp() const { return stamping_ ? now() : Moment(); }

  /// Adds a span as a Scope does.
  void add(Phase phase, const Span& span);

  /// Stops the clock; what lies in `waits` counts for no phase.
  void stop(const std::vector<Span>& waits);

  /// The iteration's collectives, from the exchange; and those of the one before, which may end in
  /// it.
  void set_collectives(const std::vector<CollectiveRecord>& own,
                       const std::vector<CollectiveRecord>& deferred = {});

  /// What the mode took on the host for turning values; NaN: it turns none.
  void set_encoding(double encode_s) { encode_s_ = encode_s; }

  const std::vector<CollectiveRecord>& collectives() const { return collectives_; }
  /// Since the iteration's start, and so is when the last rank came; of what was posted that is
  /// known without. Needs the last moment to have come.
  BucketTimes times_of(const CollectiveRecord& record, double arrival_s) const;
  /// The times from which the data of each collective could move, since the iteration's start;
  /// without them, the start of the collective counts. `before_s`: those of the iteration before,
  /// on the host's clock.
  void set_arrivals(std::vector<double> arrivals_s) { arrivals_s_ = std::move(arrivals_s); }
  void set_deferred_arrivals(std::vector<double> before_s) { deferred_s_ = std::move(before_s); }
  /// The arrivals of its own collectives, on the host's clock.
  std::vector<double> arrivals_s() const;

  /// The moments at which the iteration began and had ended.
  Moment first() const { return begin_; }
  Moment last() const { return end_; }

  /// The measured iteration, once the last moment has come. `begin_s` stays NaN.
  RankIteration result() const;

 private:
  struct Phased {
    Phase phase;
    Span span;
  };
  Moment now() const;
  /// Since the iteration's start.
  double at_s(const Moment& moment) const;
  Interval interval(const Span& span) const { return {at_s(span.begin), at_s(span.end)}; }
  void split(RankIteration& result, double length_s) const;
  /// Times in which data of this rank moved, and in which it was in a collective before.
  struct CollectiveTimes {
    std::vector<Interval> moving, waiting;
  };
  void add(CollectiveTimes& collectives, const CollectiveRecord& record,
           const BucketTimes& times) const;

  bool stamping_;
  DeviceLane* lane_;
  Moment begin_, end_;
  ProcessUsage used_;  ///< at the begin; from the end on, in between
  std::vector<Phased> spans_;
  std::vector<Span> waits_;
  std::vector<CollectiveRecord> collectives_, deferred_;
  double encode_s_ = kNotMeasured;
  std::vector<double> arrivals_s_, deferred_s_;  ///< empty: not known
};

/// An iteration without the wait for its batch. A replayed step makes its batch itself: it has no
/// such wait, and its `data` is not measured.
inline double training_s(const RankIteration& iteration) {
  const double data_s = iteration[Phase::kData];
  return iteration[Phase::kIteration] - (std::isnan(data_s) ? 0 : data_s);
}

}  // namespace gradsync
