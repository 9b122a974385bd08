#include "step/pipeline.h"

#include "step/arrivals.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

constexpr int kAnchorTries = 5;

}  // namespace

// The shortest of some readings: the event lies in the middle of it, off by half of it at most.
void Pipeline::anchor() {
  DeviceLane* lane = exchange_.lane();
  if (lane == nullptr) return;
  double shortest_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kAnchorTries; ++i) {
    const double before_s = now_s();
    const Mark mark = lane->ring.mark(lane->compute);
    exchange_.await(mark);
    const double after_s = now_s();
    if (after_s - before_s >= shortest_s) continue;
    shortest_s = after_s - before_s;
    known_mark_ = mark;
    known_s_ = (before_s + after_s) / 2;
  }
}

FinishedIteration Pipeline::finish_first() {
  StartedIteration& first = started_.front();
  DeviceLane* lane = exchange_.lane();
  IterationTimer& timer = first.step.timer;
  if (lane) exchange_.await(timer.last().mark);
  take_collectives(first.step);
  const double begun_s = lane ? begin_s(timer.first()) : timer.first().host_s;
  share_arrivals(exchange_, timer, begun_s + clock_offset_s_);
  if (first.step.deferred) timer.set_deferred_arrivals(std::move(deferred_arrivals_s_));
  deferred_arrivals_s_ = timer.arrivals_s();
  FinishedIteration finished{std::move(first.row), finish_step(first.step, replica_)};
  finished.result.measured.begin_s = begun_s;
  if (lane) lane->ring.release_below(timer.first().mark.ticket);
  started_.pop_front();
  return finished;
}

/// Single steps, since an event's time is a float: hours in milliseconds leave no microseconds.
double Pipeline::begin_s(const Moment& first) {
  EventRing& ring = exchange_.lane()->ring;
  if (!ring.in_use(known_mark_)) return kNotMeasured;
  known_s_ += ring.elapsed_s(known_mark_, first.mark);
  known_mark_ = first.mark;
  return known_s_;
}

}  // namespace gradsync
