#include "analysis/output/phase_layout.h"

#include <algorithm>
#include <cmath>

namespace gradsync::report {

namespace {

constexpr double kNothing = 1e-9;   // s: below the resolution of the clock
constexpr double kRounding = 1e-6;  // s: of sums of intervals

IntervalSet collectives_of(const RankIteration& rank) {
  std::vector<Interval> intervals;
  for (const BucketTimes& bucket : rank.buckets)
    if (std::isfinite(bucket.start_s + bucket.end_s) && bucket.end_s >= bucket.start_s)
      intervals.push_back({bucket.start_s, bucket.end_s});
  return IntervalSet(intervals);
}

/// Hands out time from 0 on that lies outside `taken`.
class FreeTime {
 public:
  explicit FreeTime(IntervalSet taken) : taken_(std::move(taken)) {}

  std::vector<Interval> next(double length_s) {
    std::vector<Interval> pieces;
    for (const Interval& busy : taken_.pieces()) {
      if (length_s <= kNothing) return pieces;
      if (busy.end_s <= now_s_) continue;
      take(std::min(length_s, busy.begin_s - now_s_), pieces, length_s);
      if (length_s > kNothing) now_s_ = busy.end_s;
    }
    take(length_s, pieces, length_s);
    return pieces;
  }

 private:
  void take(double piece_s, std::vector<Interval>& pieces, double& left_s) {
    if (piece_s <= kNothing) return;
    pieces.push_back({now_s_, now_s_ + piece_s});
    now_s_ += piece_s;
    left_s -= piece_s;
  }

  IntervalSet taken_;
  double now_s_ = 0;
};

/// Whether the rank stood still in its collectives. Where what they wait for is recorded, all of
/// them must then be exposed or wait.
bool blocked(const RankIteration& rank, const IntervalSet& collectives) {
  if (rank[Phase::kHidden] > kNothing) return false;
  if (rank.buckets.empty() || std::isnan(rank.buckets.front().arrival_s)) return true;
  return collectives.measure_s() <= rank[Phase::kExposed] + rank[Phase::kWait] + kRounding;
}

}  // namespace

std::vector<PlacedPhase> place_phases(const RankIteration& rank) {
  const IntervalSet collectives = collectives_of(rank);
  FreeTime time(blocked(rank, collectives) ? collectives : IntervalSet());
  std::vector<PlacedPhase> phases;
  for (const Phase phase : {Phase::kData, Phase::kForward, Phase::kBackward})
    if (rank[phase] > kNothing) phases.push_back({phase, time.next(rank[phase])});
  const double end_s = rank[Phase::kIteration], optimizer_s = rank[Phase::kOptimizer];
  if (optimizer_s > kNothing && end_s >= optimizer_s)
    phases.push_back({Phase::kOptimizer, {{end_s - optimizer_s, end_s}}});
  return phases;
}

}  // namespace gradsync::report
