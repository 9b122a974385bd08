// SPDX-License-Identifier: BSD-3-Clause
#include "stats/interval_set.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

namespace {

void check(const Interval& interval) {
  // Written so that NaN fails.
  if (!(std::isfinite(interval.begin_s) && std::isfinite(interval.end_s) &&
        interval.end_s >= interval.begin_s))
    throw Error(ExitCode::kInternal, fmt::format("interval [{}, {}] s: bounds must be finite and "
                                                 "the end not before the begin",
                                                 interval.begin_s, interval.end_s));
}

bool begins_earlier(const Interval& a, const Interval& b) {
  return a.begin_s < b.begin_s;
}

}  // namespace

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::ranges::for_each(intervals, check);
  std::ranges::sort(intervals, begins_earlier);
  for (const Interval& interval : intervals) {
    if (interval.length_s() == 0) continue;
    if (!pieces_.empty() && interval.begin_s <= pieces_.back().end_s)
      pieces_.back().end_s = std::max(pieces_.back().end_s, interval.end_s);
    else
      pieces_.push_back(interval);
  }
}

double IntervalSet::measure_s() const {
  double total_s = 0;
  for (const Interval& piece : pieces_)
    total_s += piece.length_s();
  return total_s;
}

IntervalSet IntervalSet::intersection(const IntervalSet& other) const {
  IntervalSet result;
  auto a = pieces_.begin();
  auto b = other.pieces_.begin();
  while (a != pieces_.end() && b != other.pieces_.end()) {
    const Interval common{std::max(a->begin_s, b->begin_s), std::min(a->end_s, b->end_s)};
    if (common.begin_s < common.end_s) result.pieces_.push_back(common);
    ++(a->end_s < b->end_s ? a : b);
  }
  return result;
}

IntervalSet IntervalSet::difference(const IntervalSet& other) const {
  IntervalSet result;
  auto cut = other.pieces_.begin();
  for (Interval rest : pieces_) {
    while (cut != other.pieces_.end() && cut->end_s <= rest.begin_s)
      ++cut;
    // A cut may reach into the next piece, so it is not used up here.
    for (auto c = cut; c != other.pieces_.end() && c->begin_s < rest.end_s; ++c) {
      if (rest.begin_s < c->begin_s) result.pieces_.push_back({rest.begin_s, c->begin_s});
      rest.begin_s = std::min(c->end_s, rest.end_s);
    }
    if (rest.begin_s < rest.end_s) result.pieces_.push_back(rest);
  }
  return result;
}

IntervalSet IntervalSet::united(const IntervalSet& other) const {
  std::vector<Interval> both = pieces_;
  both.insert(both.end(), other.pieces_.begin(), other.pieces_.end());
  return IntervalSet(std::move(both));
}

IterationSplit split_iteration(const std::vector<Interval>& compute,
                               const std::vector<Interval>& communication,
                               const std::vector<Interval>& straggler_wait, double iteration_s) {
  const IntervalSet whole({{0, iteration_s}});
  const IntervalSet c = IntervalSet(compute).intersection(whole);
  const IntervalSet k = IntervalSet(communication).intersection(whole);
  const IntervalSet busy = c.united(k);
  const IntervalSet wait = IntervalSet(straggler_wait).intersection(whole).difference(busy);
  IterationSplit split;
  split.compute_s = c.measure_s();
  split.comm_busy_s = k.measure_s();
  split.hidden_s = c.intersection(k).measure_s();
  split.exposed_s = k.difference(c).measure_s();
  split.wait_s = wait.measure_s();
  split.other_s = whole.difference(busy.united(wait)).measure_s();
  return split;
}

}  // namespace gradsync
