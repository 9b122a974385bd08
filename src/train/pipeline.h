// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>

#include "base/function_ref.h"
#include "exchange/exchange.h"
#include "record/run.h"
#include "train/iteration.h"
#include "train/iteration_timer.h"

namespace gradsync {

/// The iterations that were started and are not finished, in order. On the host each one is
/// finished at once. On a device the host starts up to kInFlight more before it reads the
/// numbers of one: by then they are complete, without a wait.
///
/// It also relates the device's time to the host's clock: at `anchor` both are read, every few
/// seconds again, and from one iteration to the next the device's own time is added.
class Pipeline {
 public:
  static constexpr std::size_t kInFlight = 2;

  /// Exchange and replica must outlive it. `clock_offset_s` is added to this rank's clock to read
  /// rank 0's.
  Pipeline(Exchange& exchange, const Replica& replica, double clock_offset_s)
      : exchange_(exchange), replica_(replica), clock_offset_s_(clock_offset_s) {}

  /// Reads both clocks, after all that the device has to do.
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
  Mark known_mark_;        ///< a moment of the device
  double known_s_ = 0;     ///< and when it was on the host's clock
  double anchored_s_ = 0;  ///< `known_s_` at the last anchor
};

/// Tells the timer from when on the data of each collective of its iteration could move: from the
/// arrival of the last rank. What a rank is in a collective before that is waiting for a straggler.
/// Collectives with a root, which ranks may leave early: the last arrival of any rank before this
/// rank left, else that of the root. In the others a rank waits, between hosts, at most as long as
/// it is in them above the shortest duration over the ranks; between devices, whose timers drift
/// apart, exactly as long.
///
/// `begin_s` is when the iteration began, on a clock that all ranks share. Between iterations, of
/// the same ones on all ranks. Collective.
void share_arrivals(Exchange& exchange, IterationTimer& timer, double begin_s);

/// What all ranks learn between two iterations.
struct Verdict {
  std::int32_t bad_rank = -1;    ///< lowest rank whose gradient or loss was not finite, or −1
  std::int64_t bad_tensor = -1;  ///< its first such parameter; −1: the loss
  StopReason stop = StopReason::kNone;
  std::int32_t stop_rank = -1;  ///< lowest rank that requests a stop, or −1
};

/// Brings every rank's iteration to rank 0, whose row gets the ranks and their samples, and a
/// verdict back; outside the timed region. `begin_s` is when this rank's iteration began, since the
/// start of the run on rank 0's clock. Rank 0 calls `record` with the row while the others wait for
/// the verdict: in the next iteration they would wait for it within the timed region. Collective.
Verdict gather_rows(Exchange& exchange, FinishedIteration& mine, double begin_s,
                    FunctionRef<void(const IterationRow&)> record);

/// Agrees on a stop where no iteration ended: the request of one rank is enough. Collective.
Verdict agree_on_stop(Exchange& exchange, StopReason mine);

}  // namespace gradsync
