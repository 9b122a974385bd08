#include "train/iteration_timer.h"

#include <cmath>

namespace gradsync {

void IterationTimer::begin() {
  spans_.clear();
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
  waits_ = waits;
}

void IterationTimer::set_collectives(const std::vector<CollectiveRecord>& own,
                                     const std::vector<CollectiveRecord>& carried_in) {
  collectives_ = own;
  carried_in_ = carried_in;
}

double IterationTimer::at_s(const Moment& moment) const {
  if (lane_) return lane_->ring.elapsed_s(begin_.mark, moment.mark);
  return moment.host_s - begin_.host_s;
}

BucketTimes IterationTimer::times_of(const CollectiveRecord& record) const {
  return {at_s({record.ready_s, record.ready}), at_s({record.start_s, record.start}),
          at_s({record.end_s, record.end})};
}

RankIteration IterationTimer::result() const {
  RankIteration result;
  const double length_s = at_s(end_);
  result[Phase::kIteration] = length_s;
  if (stamping_) split(result, length_s);
  return result;
}

void IterationTimer::split(RankIteration& result, double length_s) const {
  for (const Phase phase : {Phase::kData, Phase::kForward, Phase::kBackward, Phase::kOptimizer})
    result[phase] = 0;
  std::vector<Interval> waits, compute, communication;
  for (const Span& wait : waits_)
    waits.push_back(interval(wait));
  const IntervalSet waited(waits);
  for (const Phased& one : spans_) {
    const IntervalSet worked = IntervalSet({interval(one.span)}).difference(waited);
    result[one.phase] += worked.measure_s();
    if (one.phase != Phase::kData)
      compute.insert(compute.end(), worked.pieces().begin(), worked.pieces().end());
  }
  for (const CollectiveRecord& record : collectives_) {
    result.buckets.push_back(times_of(record));
    communication.push_back({result.buckets.back().start_s, result.buckets.back().end_s});
    if (std::isnan(record.convert_s)) continue;
    result[Phase::kConvert] = std::fmax(result[Phase::kConvert], 0) + record.convert_s;
  }
  for (const CollectiveRecord& record : carried_in_) {
    const BucketTimes times = times_of(record);
    communication.push_back({times.start_s, times.end_s});
  }
  const IterationSplit split = split_iteration(compute, communication, length_s);
  result[Phase::kCompute] = split.compute_s;
  result[Phase::kCommBusy] = split.comm_busy_s;
  result[Phase::kHidden] = split.hidden_s;
  result[Phase::kExposed] = split.exposed_s;
  result[Phase::kOther] = split.other_s;
}

}  // namespace gradsync
