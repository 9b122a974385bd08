#pragma once

#include <deque>

#include "exchange/exchange.h"
#include "train/iteration_timer.h"
#include "train/step.h"

namespace gradsync {

/// One iteration of this rank with the head of its row.
struct StartedIteration {
  IterationRow row;
  PendingStep step;
};
struct FinishedIteration {
  IterationRow row;
  StepResult result;
};

/// The iterations that were started and are not finished, in order. On the host each one is
/// finished at once. On a device the host starts up to kInFlight more before it reads the
/// numbers of one: by then they are complete, without a wait.
///
/// It also relates the device's time to the host's clock: at `anchor` both are read, and from one
/// iteration to the next the device's own time is added.
class Pipeline {
 public:
  static constexpr std::size_t kInFlight = 2;

  /// Both must outlive it. `clock_offset_s` is added to this rank's clock to read rank 0's.
  Pipeline(Exchange& exchange, const Replica& replica, double clock_offset_s)
      : exchange_(exchange), replica_(replica), clock_offset_s_(clock_offset_s) {}

  /// Between epochs, while nothing is in flight.
  void anchor();

  void push(StartedIteration started) { started_.push_back(std::move(started)); }
  bool empty() const { return started_.empty(); }
  /// Whether the first one is to be finished before another one starts.
  bool full() const { return started_.size() > (exchange_.lane() ? kInFlight : 0); }

  /// Finishes the first one: looks at its last event until that has happened, and lets all ranks
  /// know when each came to its collectives. Collective.
  FinishedIteration finish_first();

 private:
  double begin_s(const Moment& first);

  Exchange& exchange_;
  const Replica& replica_;
  double clock_offset_s_;
  std::vector<double> deferred_arrivals_s_;  ///< of the iteration that was finished last
  std::deque<StartedIteration> started_;
  Mark known_mark_;     ///< a moment of the device
  double known_s_ = 0;  ///< and when it was on the host's clock
};

/// Tells the timer from when on the data of each collective of its iteration could move: from the
/// arrival of the last rank. What a rank is in a collective before that is waiting for a straggler.
/// With a root, of which ranks may leave early: the last arrival before this rank left, of all
/// ranks, else of the root. Between hosts, whose clocks drift apart, an all-reduce counts as
/// waiting at most what it took above its shortest duration over the ranks.
///
/// `begin_s` is when the iteration began, on a clock that all ranks share. Between iterations, of
/// the same ones on all ranks. Collective.
void share_arrivals(Exchange& exchange, IterationTimer& timer, double begin_s);

}  // namespace gradsync
