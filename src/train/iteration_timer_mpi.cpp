// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>

#include "train/iteration_timer.h"

namespace gradsync {

namespace {

/// Arrival of the last rank where it is not known: as if this one had been the last.
constexpr double kUnknown = -std::numeric_limits<double>::infinity();

}  // namespace

void IterationTimer::begin() {
  spans_.clear();
  if (stamping_) used_ = process_usage();
  begin_ = now();
}

Moment IterationTimer::now() const {
  if (lane_) return {kNotMeasured, lane_->ring.mark(lane_->compute)};
  return {now_s(), {}};
}

void IterationTimer::add(Phase phase, const Span& span) {
  if (stamping_) spans_.push_back({phase, span});
}

void IterationTimer::stop(const std::vector<Span>& waits) {
  end_ = now();
  if (stamping_) used_ = process_usage() - used_;
  waits_ = waits;
}

void IterationTimer::set_collectives(const std::vector<CollectiveRecord>& own,
                                     const std::vector<CollectiveRecord>& deferred) {
  collectives_ = own;
  deferred_ = deferred;
}

double IterationTimer::at_s(const Moment& moment) const {
  if (lane_) return lane_->ring.elapsed_s(begin_.mark, moment.mark);
  return moment.host_s - begin_.host_s;
}

BucketTimes IterationTimer::times_of(const CollectiveRecord& record, double arrival_s) const {
  BucketTimes times;
  times.ready_s = at_s({record.ready_s, record.ready});
  times.start_s = at_s({record.start_s, record.start});
  times.end_s = std::max(times.start_s, at_s({record.end_s, record.end}));
  if (record.posted) arrival_s = at_s({record.posted->last.begin_s, {}});
  times.arrival_s = std::clamp(arrival_s, times.start_s, times.end_s);
  return times;
}

std::vector<double> IterationTimer::arrivals_s() const {
  std::vector<double> on_clock_s;
  for (const double arrival_s : arrivals_s_)
    on_clock_s.push_back(begin_.host_s + arrival_s);
  return on_clock_s;
}

RankIteration IterationTimer::result() const {
  RankIteration result;
  const double length_s = at_s(end_);
  result[Phase::kIteration] = length_s;
  if (stamping_) split(result, length_s);
  return result;
}

void IterationTimer::add(CollectiveTimes& collectives, const CollectiveRecord& record,
                         const BucketTimes& times) const {
  collectives.waiting.push_back({times.start_s, times.arrival_s});
  collectives.moving.push_back({times.arrival_s, times.end_s});
  if (record.posted)
    collectives.moving.push_back(
        {at_s({record.posted->own.begin_s, {}}), at_s({record.posted->own.end_s, {}})});
}

void IterationTimer::split(RankIteration& result, double length_s) const {
  for (const Phase phase : {Phase::kData, Phase::kForward, Phase::kBackward, Phase::kOptimizer})
    result[phase] = 0;
  result[Usage::kCpuTime] = used_.cpu_time_s;
  result[Usage::kVoluntarySwitches] = static_cast<double>(used_.voluntary_switches);
  result[Usage::kInvoluntarySwitches] = static_cast<double>(used_.involuntary_switches);
  std::vector<Interval> waits, compute;
  for (const Span& wait : waits_)
    waits.push_back(interval(wait));
  const IntervalSet waited(waits);
  for (const Phased& one : spans_) {
    const IntervalSet worked = IntervalSet({interval(one.span)}).difference(waited);
    result[one.phase] += worked.measure_s();
    if (one.phase != Phase::kData)
      compute.insert(compute.end(), worked.pieces().begin(), worked.pieces().end());
  }
  result[Phase::kConvert] = encode_s_;
  CollectiveTimes collectives;
  for (std::size_t i = 0; i < collectives_.size(); ++i) {
    const CollectiveRecord& record = collectives_[i];
    result.buckets.push_back(times_of(record, arrivals_s_.empty() ? kUnknown : arrivals_s_[i]));
    add(collectives, record, result.buckets.back());
    if (std::isnan(record.convert_s)) continue;
    result[Phase::kConvert] = std::fmax(result[Phase::kConvert], 0) + record.convert_s;
  }
  for (std::size_t i = 0; i < deferred_.size(); ++i)
    add(collectives, deferred_[i],
        times_of(deferred_[i], deferred_s_.empty() ? kUnknown : deferred_s_[i] - begin_.host_s));
  const IterationSplit split =
      split_iteration(compute, collectives.moving, collectives.waiting, length_s);
  result[Phase::kCompute] = split.compute_s;
  result[Phase::kCommBusy] = split.comm_busy_s;
  result[Phase::kHidden] = split.hidden_s;
  result[Phase::kExposed] = split.exposed_s;
  result[Phase::kWait] = split.wait_s;
  result[Phase::kOther] = split.other_s;
}

}  // namespace gradsync
