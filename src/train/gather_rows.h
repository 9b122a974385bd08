#pragma once

#include "exchange/exchange.h"
#include "record/run.h"
#include "train/step.h"

namespace gradsync {

/// What all ranks learn between two iterations.
struct Verdict {
  std::int32_t bad_rank = -1;    ///< lowest rank whose gradient or loss was not finite, or −1
  std::int64_t bad_tensor = -1;  ///< its first such parameter; −1: the loss
  StopReason stop = StopReason::kNone;
  std::int32_t stop_rank = -1;  ///< lowest rank that requests a stop, or −1
};

/// Brings every rank's iteration to rank 0 and a verdict back, outside the timed region. On rank 0
/// `row` gets the ranks and the buckets of each.
/// `begin_s` is when this rank's iteration began, since the start of the run on rank 0's clock.
/// Collective.
Verdict gather_rows(Exchange& exchange, const StepResult& mine, double begin_s, IterationRow& row);

/// The same for a stop alone, where no iteration ended: the request of one rank is enough.
/// Collective.
Verdict agree_on_stop(Exchange& exchange, StopReason mine);

}  // namespace gradsync
