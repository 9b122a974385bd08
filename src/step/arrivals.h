#pragma once

#include "exchange/exchange.h"
#include "step/iteration_timer.h"

namespace gradsync {

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
