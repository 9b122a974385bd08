#pragma once

#include <vector>

#include "comm/exchange.h"
#include "record/run.h"
#include "timing/clock.h"
#include "timing/interval_set.h"

namespace gradsync {

/// Collects the intervals of one iteration of this rank and turns them into what is recorded.
/// Times in seconds of this rank's steady clock until `finish`, then since the iteration's start.
class IterationTimer {
 public:
  /// Without `stamping` nothing but the length of the iteration is measured. What lies in `waits`
  /// (of this rank's steady clock; it may grow until `finish`) counts for no phase.
  explicit IterationTimer(bool stamping = true, const std::vector<Interval>* waits = nullptr)
      : stamping_(stamping), waits_(waits) {}

  void begin();

  /// Adds its own lifetime to `phase`, and to the compute intervals unless the phase is kData.
  class Scope {
   public:
    Scope(IterationTimer& timer, Phase phase) : timer_(timer), phase_(phase) {}
    ~Scope() { timer_.add(phase_, {begin_s_, timer_.stamp_s()}); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    IterationTimer& timer_;
    Phase phase_;
    double begin_s_ = timer_.stamp_s();
  };

  /// Now on the steady clock; 0 without stamping.
  double stamp_s() const { return stamping_ ? now_s() : 0; }

  /// Adds an interval of this rank's steady clock as a Scope does.
  void add(Phase phase, Interval interval);

  /// Stops the clock. The collectives come from the exchange; `wait` stays NaN, since only all
  /// ranks together can tell it.
  RankIteration finish(const std::vector<CollectiveRecord>& collectives);

  double begin_s() const { return begin_s_; }

 private:
  std::vector<Interval> without_waits(Interval interval) const;

  bool stamping_;
  const std::vector<Interval>* waits_;
  double begin_s_ = 0;
  RankIteration result_;
  std::vector<Interval> compute_;
};

}  // namespace gradsync
