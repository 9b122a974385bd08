#include "train/iteration_timer.h"

namespace gradsync {

void IterationTimer::begin() {
  compute_.clear();
  result_ = RankIteration();
  for (const Phase phase : {Phase::kData, Phase::kForward, Phase::kBackward, Phase::kOptimizer})
    result_[phase] = 0;
  begin_s_ = now_s();
}

void IterationTimer::add(Phase phase, Interval interval) {
  if (!stamping_) return;
  for (const Interval& piece : without_waits(interval)) {
    result_[phase] += piece.length_s();
    if (phase != Phase::kData)
      compute_.push_back({piece.begin_s - begin_s_, piece.end_s - begin_s_});
  }
}

std::vector<Interval> IterationTimer::without_waits(Interval interval) const {
  if (waits_ == nullptr || waits_->empty()) return {interval};
  return IntervalSet({interval}).difference(IntervalSet(*waits_)).pieces();
}

RankIteration IterationTimer::finish(const std::vector<CollectiveRecord>& collectives) {
  const double length_s = now_s() - begin_s_;
  if (!stamping_) {
    result_ = RankIteration();
    result_[Phase::kIteration] = length_s;
    return std::move(result_);
  }
  std::vector<Interval> communication;
  result_.buckets.clear();
  for (const CollectiveRecord& one : collectives) {
    const BucketTimes times{one.ready_s - begin_s_, one.start_s - begin_s_, one.end_s - begin_s_};
    result_.buckets.push_back(times);
    communication.push_back({times.start_s, times.end_s});
  }
  const IterationSplit split = split_iteration(compute_, communication, length_s);
  result_[Phase::kIteration] = length_s;
  result_[Phase::kCompute] = split.compute_s;
  result_[Phase::kCommBusy] = split.comm_busy_s;
  result_[Phase::kHidden] = split.hidden_s;
  result_[Phase::kExposed] = split.exposed_s;
  result_[Phase::kOther] = split.other_s;
  return std::move(result_);
}

}  // namespace gradsync
