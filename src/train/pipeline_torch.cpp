#include <algorithm>
#include <limits>

#include "stats/clock.h"
#include "train/pipeline.h"

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
    exchange_.await(mark, Look::kSpinning);
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

namespace {

/// The largest values over the ranks, of one collective, in the order in which they are exchanged.
struct Largest {
  double arrival_s;        ///< of all ranks
  double root_or_short_s;  ///< arrival of the root; without one, the shortest duration, negative
};
constexpr std::size_t kValues = 2;

bool has_root(const CollectiveRecord& record) {
  return record.root >= 0;
}

/// As this rank saw it.
BucketTimes times_here(const IterationTimer& timer, const CollectiveRecord& record) {
  return timer.times_of(record, /*arrival_s=*/0);
}

Largest mine(const CollectiveRecord& record, const BucketTimes& times, int rank, double begin_s) {
  const double arrival_s = begin_s + times.start_s;
  if (!has_root(record)) return {arrival_s, times.start_s - times.end_s};
  return {arrival_s, record.root == rank ? arrival_s : -std::numeric_limits<double>::infinity()};
}

/// Since the iteration's start.
double arrival_of(const CollectiveRecord& record, const BucketTimes& times, const Largest& largest,
                  double begin_s, bool one_clock) {
  const double last_s = largest.arrival_s - begin_s;
  if (has_root(record)) {
    const double root_s = largest.root_or_short_s - begin_s;
    for (const double seen_s : {last_s, root_s})
      if (seen_s < times.end_s) return std::max(times.start_s, seen_s);
    return times.start_s;
  }
  const double latest_s = one_clock ? times.end_s : times.end_s + largest.root_or_short_s;
  return std::max(times.start_s, std::min(last_s, latest_s));
}

}  // namespace

void share_arrivals(Exchange& exchange, IterationTimer& timer, double begin_s) {
  const std::vector<CollectiveRecord>& records = timer.collectives();
  if (exchange.session().size() == 1 || records.empty()) return;
  std::vector<double> values;
  for (const CollectiveRecord& record : records) {
    const Largest one = mine(record, times_here(timer, record), exchange.session().rank(), begin_s);
    values.insert(values.end(), {one.arrival_s, one.root_or_short_s});
  }
  exchange.session().max(values);
  const bool one_clock = exchange.session().local_size() == exchange.session().size();
  std::vector<double> arrivals_s;
  for (std::size_t i = 0; i < records.size(); ++i)
    arrivals_s.push_back(arrival_of(records[i], times_here(timer, records[i]),
                                    {values[kValues * i], values[kValues * i + 1]}, begin_s,
                                    one_clock));
  timer.set_arrivals(std::move(arrivals_s));
}

}  // namespace gradsync
