// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/rank_timeline.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "base/ranges.h"

namespace gradsync::report {

namespace {

/// What the clocks of a host and its device differ by (pytorch/kineto issue 1380: 40 us).
constexpr double kClocksDiffer_s = 1e-3;
/// What work of one stream may overlap: its begin can be programmed before the end of the last one.
constexpr double kOverlap_s = 1e-3;
constexpr double kRounding_s = 1e-6;
/// A device may be at work after the host's last step: so many times as long as all steps.
constexpr double kDeviceBehind = 2;

const Interval& time_of(const Interval& when) {
  return when;
}

template <typename Event>
const Interval& time_of(const Event& event) {
  return event.when;
}

/// Which elements of a sequence to keep, so that the most are left and those never fall: of several
/// such choices that of the larger values, since a lost time is an early one.
std::vector<bool> longest_rising(const std::vector<double>& values) {
  std::vector<std::size_t> ends, before(values.size());
  for (std::size_t i = values.size(); i-- > 0;) {
    const auto place = std::ranges::upper_bound(
        ends, values[i], [&](double value, std::size_t end) { return value > values[end]; });
    before[i] = place == ends.begin() ? i : *(place - 1);
    if (place == ends.end())
      ends.push_back(i);
    else
      *place = i;
  }
  std::vector<bool> kept(values.size());
  for (std::size_t left = ends.size(), i = ends.empty() ? 0 : ends.back(); left > 0; --left) {
    kept[i] = true;
    i = before[i];
  }
  return kept;
}

// --- steps ---------------------------------------------------------------------------------------

/// Steps whose times rise with their numbers, and of these the largest part without a gap between
/// successive numbers that is longer than all steps together.
void keep_steps_in_order(std::vector<TracedStep>& steps) {
  std::ranges::stable_sort(steps, {}, &TracedStep::number);
  std::vector<double> begins_s;
  double all_s = 0;
  for (const TracedStep& step : steps) {
    begins_s.push_back(step.when.begin_s);
    all_s += step.when.length_s();
  }
  const std::vector<bool> rising = longest_rising(begins_s);
  std::vector<std::vector<TracedStep>> parts;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!rising[i]) continue;
    const bool joins =
        !parts.empty() && (steps[i].number > parts.back().back().number + 1 ||
                           steps[i].when.begin_s - parts.back().back().when.end_s <= all_s);
    if (!joins) parts.emplace_back();
    parts.back().push_back(steps[i]);
  }
  std::size_t largest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].size() >= parts[largest].size()) largest = i;  // a lost time is an early one
  if (!parts.empty()) steps = std::move(parts[largest]);
}

// --- work on a device ----------------------------------------------------------------------------

struct Launched {
  Interval launch;
  Interval* when;
};

void leave_out(Interval& when) {
  when.begin_s = kNotMeasured;
}

bool is_left_out(const Interval& when) {
  return std::isnan(when.begin_s);
}

/// Unless most work seems to begin before its launch: then the clocks differ by more.
void leave_out_before_launch(std::vector<Launched>& work) {
  const auto too_early = [](const Launched& one) {
    return one.when->begin_s < one.launch.begin_s - kClocksDiffer_s;
  };
  const auto count = std::ranges::count_if(work, too_early);
  if (2 * static_cast<std::size_t>(count) > work.size()) return;
  for (Launched& one : work)
    if (too_early(one)) leave_out(*one.when);
}

/// In order of launch. Threads may launch at the same time, which says nothing of the order.
void leave_out_of_order(std::vector<Launched>& stream) {
  std::vector<double> begins_s =
      each(stream, [](const Launched& one) { return one.when->begin_s; });
  const std::vector<bool> rising = longest_rising(begins_s);
  std::vector<Launched> kept;
  for (std::size_t i = 0; i < stream.size(); ++i)
    if (rising[i]) kept.push_back(stream[i]);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (rising[i]) continue;
    const Launched& one = stream[i];
    auto after = std::ranges::partition_point(
        kept, [&](const Launched& other) { return other.launch.begin_s < one.launch.begin_s; });
    auto before = after;
    while (before != kept.begin() && (before - 1)->launch.end_s > one.launch.begin_s)
      --before;
    while (after != kept.end() && after->launch.begin_s < one.launch.end_s)
      ++after;
    const double begin_s = one.when->begin_s;
    if ((before != kept.begin() && (before - 1)->when->begin_s > begin_s + kOverlap_s) ||
        (after != kept.end() && after->when->begin_s < begin_s - kOverlap_s))
      leave_out(*one.when);
  }
}

/// What lasts into others that follow it.
void leave_out_overlapping(std::vector<Launched>& stream) {
  std::ranges::stable_sort(stream, [](const Launched& a, const Launched& b) {
    return a.when->begin_s < b.when->begin_s;
  });
  std::vector<std::pair<Interval*, double>> lasting;  // with what they overlap so far
  for (const Launched& one : stream) {
    for (auto& [earlier, overlap_s] : lasting) {
      overlap_s += std::max(0.0, std::min(earlier->end_s, one.when->end_s) - one.when->begin_s);
      if (overlap_s > kOverlap_s) leave_out(*earlier);
    }
    std::erase_if(lasting, [&](const auto& earlier) {
      return is_left_out(*earlier.first) || earlier.first->end_s <= one.when->begin_s;
    });
    lasting.emplace_back(one.when, 0.0);
  }
}

/// The work of ordered launches, each of which launched one thing, by stream and in their order.
/// Collectives and work of an unknown stream are under -1.
std::map<std::int32_t, std::vector<Launched>> launched_work(TraceEvents& trace) {
  struct Work {
    std::int64_t correlation;
    std::int32_t stream;
    Interval* when;
  };
  std::vector<Work> all;
  for (DeviceWork& work : trace.device_work)
    all.push_back({work.correlation, work.stream, &work.when});
  for (TracedCollective& work : trace.collectives)
    if (work.correlation >= 0) all.push_back({work.correlation, -1, &work.when});
  std::ranges::stable_sort(all, {}, &Work::correlation);
  std::vector<DeviceLaunch> launches = trace.launches;
  std::ranges::stable_sort(
      launches, [](const auto& a, const auto& b) { return a.correlation < b.correlation; });
  std::map<std::int32_t, std::vector<Launched>> streams;
  auto launch = launches.begin();
  for (std::size_t i = 0; i < all.size(); ++i) {
    while (launch != launches.end() && launch->correlation < all[i].correlation)
      ++launch;
    const auto same = [&](std::size_t other) {
      return other < all.size() && all[other].correlation == all[i].correlation;
    };
    if (launch != launches.end() && launch->correlation == all[i].correlation && launch->ordered &&
        !same(i - 1) && !same(i + 1))
      streams[all[i].stream].push_back({launch->when, all[i].when});
  }
  for (auto& [stream, work] : streams)
    std::ranges::stable_sort(work, [](const Launched& a, const Launched& b) {
      return a.launch.begin_s < b.launch.begin_s;
    });
  return streams;
}

void check_device_work(TraceEvents& trace) {
  const auto left = [](std::vector<Launched>& stream) {
    std::erase_if(stream, [](const Launched& one) { return is_left_out(*one.when); });
  };
  for (auto& [stream, work] : launched_work(trace)) {
    leave_out_before_launch(work);
    left(work);
    if (stream < 0) continue;
    leave_out_of_order(work);
    left(work);
    leave_out_overlapping(work);
  }
}

/// From the first step to the last; without steps, of optimizer steps.
Interval extent_of(const TraceEvents& trace) {
  Interval all{kNotMeasured, kNotMeasured};
  const auto add = [&](const Interval& when) {
    all = {std::fmin(all.begin_s, when.begin_s), std::fmax(all.end_s, when.end_s)};
  };
  for (const TracedStep& step : trace.steps)
    add(step.when);
  if (trace.steps.empty()) std::ranges::for_each(trace.optimizer, add);
  return all;
}

}  // namespace

std::size_t leave_out_implausible(TraceEvents& trace) {
  const std::size_t recorded = trace.steps.size();
  keep_steps_in_order(trace.steps);
  std::size_t left_out = recorded - trace.steps.size();

  const Interval all = extent_of(trace);
  const bool may_be_lost = trace.zero_s < all.begin_s - all.length_s();
  const auto lost = [&](double begin_s) { return may_be_lost && begin_s <= trace.zero_s; };
  const auto check = [&](auto& events, double longest_s) {
    return std::erase_if(events, [&](const auto& event) {
      const Interval& when = time_of(event);
      return is_left_out(when) || when.length_s() > longest_s + kRounding_s || lost(when.begin_s);
    });
  };
  for (auto* list : {&trace.operators, &trace.optimizer, &trace.forward, &trace.data,
                     &trace.device_optimizer, &trace.device_forward})
    left_out += check(*list, all.length_s());
  left_out += check(trace.launches, all.length_s());
  for (auto* list : {&trace.backward, &trace.calls})  // which are operators and counted there
    check(*list, all.length_s());
  std::erase_if(trace.posted, [&](const PostedCollective& call) { return lost(call.at_s); });
  check_device_work(trace);
  left_out += check(trace.device_work, kDeviceBehind * all.length_s());
  left_out += check(trace.collectives, kDeviceBehind * all.length_s());
  return left_out;
}

namespace {

bool begins_before(const Interval& a, const Interval& b) {
  return a.begin_s < b.begin_s;
}

/// What lies of a set in a window, since the begin of the window.
std::vector<Interval> cut(const IntervalSet& set, const Interval& window) {
  const std::vector<Interval>& all = set.pieces();
  auto at = std::ranges::partition_point(
      all, [&](const Interval& piece) { return piece.end_s <= window.begin_s; });
  std::vector<Interval> inside;
  for (; at != all.end() && at->begin_s < window.end_s; ++at)
    inside.push_back({std::max(at->begin_s, window.begin_s) - window.begin_s,
                      std::min(at->end_s, window.end_s) - window.begin_s});
  return inside;
}

// --- iterations ----------------------------------------------------------------------------------

std::vector<TracedStep> between_optimizer_steps(std::vector<Interval> optimizer) {
  std::ranges::sort(optimizer, begins_before);
  std::vector<TracedStep> steps;
  for (std::size_t i = 1; i < optimizer.size(); ++i)
    steps.push_back(
        {static_cast<std::int64_t>(i - 1), {optimizer[i - 1].end_s, optimizer[i].end_s}});
  std::erase_if(steps, [](const TracedStep& step) { return step.when.length_s() < 0; });
  return steps;
}

/// By number. A number that is there twice is of another cycle of the profiler.
std::vector<TracedStep> steps_of(const TraceEvents& trace) {
  std::vector<TracedStep> steps =
      trace.steps.empty() ? between_optimizer_steps(trace.optimizer) : trace.steps;
  if (steps.empty())
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' holds no iterations: no ProfilerStep#N and fewer than two "
                            "optimizer steps",
                            trace.path.string()),
                "call prof.step() at the end of each iteration");
  std::ranges::stable_sort(steps, {}, &TracedStep::number);
  const auto same = [](const TracedStep& a, const TracedStep& b) { return a.number == b.number; };
  steps.erase(std::unique(steps.begin(), steps.end(), same), steps.end());
  return steps;
}

/// Which step holds a moment; the number of steps if none does. Steps in order of time.
std::size_t step_at(const std::vector<TracedStep>& steps, double time_s) {
  const auto after = std::ranges::partition_point(
      steps, [&](const TracedStep& step) { return step.when.begin_s <= time_s; });
  if (after == steps.begin() || !(time_s < (after - 1)->when.end_s)) return steps.size();
  return static_cast<std::size_t>(after - 1 - steps.begin());
}

// --- on the CPU ----------------------------------------------------------------------------------

/// Which collective a call may be of: kind, elements.
using CallKey = std::pair<int, std::int64_t>;

CallKey by_kind(const CollectiveFacts& facts) {
  return {facts.kind ? static_cast<int>(*facts.kind) : -1, -1};
}

CallKey by_kind_and_size(const CollectiveFacts& facts) {
  return {by_kind(facts).first, facts.elements};
}

class CallMatcher {
 public:
  explicit CallMatcher(const TraceEvents& trace)
      : collectives_(trace.collectives),
        calls_(trace.posted),
        taken_(trace.posted.size()),
        called_s_(trace.collectives.size(), kNotMeasured) {
    std::ranges::stable_sort(calls_, {}, &PostedCollective::at_s);
  }

  /// Each collective of `wanted` that has none gets the first free call of its key, if that was
  /// made before it began.
  template <typename Wanted>
  void match(CallKey (*key_of)(const CollectiveFacts&), Wanted wanted) {
    std::map<CallKey, std::deque<std::size_t>> free;
    for (std::size_t i = 0; i < calls_.size(); ++i)
      if (!taken_[i]) free[key_of(calls_[i].facts)].push_back(i);
    for (std::size_t i = 0; i < collectives_.size(); ++i) {
      const TracedCollective& one = collectives_[i];
      if (std::isfinite(called_s_[i]) || !wanted(one)) continue;
      std::deque<std::size_t>& calls = free[key_of(one.facts)];
      if (calls.empty() || calls_[calls.front()].at_s > one.when.begin_s) continue;
      called_s_[i] = calls_[calls.front()].at_s;
      taken_[calls.front()] = true;
      calls.pop_front();
    }
  }
  /// One a collective; NaN for those without a call.
  const std::vector<double>& called_s() const { return called_s_; }

 private:
  const std::vector<TracedCollective>& collectives_;
  std::vector<PostedCollective> calls_;
  std::vector<bool> taken_;
  std::vector<double> called_s_;
};

/// When each collective was called, in the order of Trace.collectives. Several threads of Gloo
/// serve calls, so that a later call may begin first: a size tells them apart. A collective that
/// began before the first call has none in the trace.
std::vector<double> call_times(const TraceEvents& trace) {
  CallMatcher matcher(trace);
  matcher.match(by_kind_and_size, [](const auto& one) { return one.facts.elements >= 0; });
  matcher.match(by_kind, [](const auto&) { return true; });
  return matcher.called_s();
}

/// Puts collectives in the order of their calls, which is the same on all ranks. Returns when they
/// were called.
std::vector<double> sort_by_calls(TraceEvents& trace) {
  const std::vector<double> called_s = call_times(trace);
  std::vector<std::size_t> order(called_s.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key_s = [&](std::size_t at) {
    return std::isfinite(called_s[at]) ? called_s[at] : trace.collectives[at].when.begin_s;
  };
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return key_s(a) < key_s(b); });
  std::vector<double> sorted_s;
  std::vector<TracedCollective> collectives;
  for (const std::size_t at : order) {
    sorted_s.push_back(called_s[at]);
    collectives.push_back(trace.collectives[at]);
  }
  trace.collectives = std::move(collectives);
  return sorted_s;
}

// --- on a device ---------------------------------------------------------------------------------

/// When each launch began, by its correlation.
using Launches = std::unordered_map<std::int64_t, double>;

/// NaN where the trace does not hold the launch.
double launched_s(const Launches& launches, std::int64_t correlation) {
  const auto found = launches.find(correlation);
  return found == launches.end() ? kNotMeasured : found->second;
}

/// The last end of compute that was launched before a moment: a collective waits for it in its
/// stream.
class ComputeBefore {
 public:
  ComputeBefore(const std::vector<DeviceWork>& work, const Launches& launches) {
    for (const DeviceWork& one : work)
      if (const double at_s = launched_s(launches, one.correlation);
          one.computes && std::isfinite(at_s))
        ends_.push_back({at_s, one.when.end_s});
    std::ranges::sort(ends_);
    for (std::size_t i = 1; i < ends_.size(); ++i)
      ends_[i].second = std::max(ends_[i].second, ends_[i - 1].second);
  }
  double end_s(double moment_s) const {
    const auto after =
        std::ranges::partition_point(ends_, [&](const auto& end) { return end.first < moment_s; });
    return after == ends_.begin() ? kNotMeasured : (after - 1)->second;
  }

 private:
  std::vector<std::pair<double, double>> ends_;
};

/// The steps on the device, from the first kernel of each; nothing if one of them launched none, or
/// begins before the one ahead of it.
std::vector<TracedStep> device_steps(const TraceEvents& trace, std::vector<TracedStep> steps,
                                     const Launches& launches) {
  const std::vector<TracedStep> on_cpu = steps;
  for (TracedStep& step : steps)
    step.when = {std::numeric_limits<double>::infinity(), 0};
  // A copy for the next step may run beside this one's kernels.
  const auto widen = [&](std::int64_t correlation, const Interval& when, bool is_kernel) {
    const std::size_t at = step_at(on_cpu, launched_s(launches, correlation));
    if (at == steps.size()) return;
    if (is_kernel) steps[at].when.begin_s = std::min(steps[at].when.begin_s, when.begin_s);
    steps[at].when.end_s = std::max(steps[at].when.end_s, when.end_s);
  };
  for (const DeviceWork& work : trace.device_work)
    widen(work.correlation, work.when, work.computes);
  for (const TracedCollective& collective : trace.collectives)
    if (collective.correlation >= 0) widen(collective.correlation, collective.when, true);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!std::isfinite(steps[i].when.begin_s)) return {};
    const bool next = i + 1 < steps.size() && steps[i + 1].number == steps[i].number + 1;
    if (i > 0 && steps[i].when.begin_s < steps[i - 1].when.begin_s) return {};
    if (next) steps[i].when.end_s = steps[i + 1].when.begin_s;
  }
  return steps;
}

// NCCL's kernels of older versions say nothing of themselves; their calls do.
void complete_from_calls(TraceEvents& trace) {
  std::unordered_map<std::int64_t, const CollectiveFacts*> calls;
  for (const PostedCollective& posted : trace.posted)
    if (posted.external_id >= 0 && posted.facts.bytes >= 0)
      calls.emplace(posted.external_id, &posted.facts);
  for (TracedCollective& collective : trace.collectives) {
    const auto call = calls.find(collective.external_id);
    if (collective.facts.bytes >= 0 || call == calls.end()) continue;
    const auto named = collective.facts.kind;
    collective.facts = *call->second;
    if (!collective.facts.kind) collective.facts.kind = named;
  }
}

// --- phases --------------------------------------------------------------------------------------

/// Annotations and functions of the autograd engine.
struct Phases {
  std::vector<Interval> forward, backward, optimizer;
};

double overlap_s(const Interval& a, const Interval& b) {
  return std::max(0.0, std::min(a.end_s, b.end_s) - std::max(a.begin_s, b.begin_s));
}

/// What lies of a kind in each step: from the first to the last of those that have the most of
/// their time in the step, cut to it. Empty where none has. An annotation of a device may begin
/// before the first kernel in it, at which the step begins.
std::vector<Interval> spans_in(const std::vector<TracedStep>& steps,
                               const std::vector<Interval>& all) {
  std::vector<Interval> spans(steps.size());
  for (const Interval& one : all) {
    const auto first = std::ranges::partition_point(
        steps, [&](const auto& step) { return step.when.end_s <= one.begin_s; });
    auto most = first;
    for (auto step = first; step != steps.end() && step->when.begin_s < one.end_s; ++step)
      if (overlap_s(one, step->when) > overlap_s(one, most->when)) most = step;
    if (most == steps.end() || !(overlap_s(one, most->when) > 0)) continue;
    const Interval inside{std::max(one.begin_s, most->when.begin_s),
                          std::min(one.end_s, most->when.end_s)};
    Interval& span = spans[static_cast<std::size_t>(most - steps.begin())];
    span = span.length_s() > 0 ? Interval{std::min(span.begin_s, inside.begin_s),
                                          std::max(span.end_s, inside.end_s)}
                               : inside;
  }
  return spans;
}

/// No two phases have a part in common: what lies in the optimizer step is of it alone.
void place_phases(const Phases& phases, const std::vector<TracedStep>& steps,
                  std::vector<TimelineIteration>& iterations) {
  const auto forwards = spans_in(steps, phases.forward);
  const auto backwards = spans_in(steps, phases.backward);
  const auto optimizers = spans_in(steps, phases.optimizer);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double begin_s = steps[i].when.begin_s;
    const Interval &forward = forwards[i], &backward = backwards[i], &optimizer = optimizers[i];
    const auto without_optimizer = [&](const Interval& phase) {
      IntervalSet left({{phase.begin_s - begin_s, phase.end_s - begin_s}});
      return left.difference(
          IntervalSet({{optimizer.begin_s - begin_s, optimizer.end_s - begin_s}}));
    };
    TimelineIteration& iteration = iterations[i];
    if (optimizer.length_s() > 0)
      iteration.optimizer = IntervalSet({{optimizer.begin_s - begin_s, optimizer.end_s - begin_s}});
    if (backward.length_s() > 0) iteration.backward = without_optimizer(backward);
    if (forward.length_s() <= 0) continue;
    iteration.data = without_optimizer({begin_s, forward.begin_s});
    if (backward.begin_s >= forward.begin_s && backward.length_s() > 0)
      iteration.forward = without_optimizer({forward.begin_s, backward.begin_s});
  }
}

/// On a device the backward pass is the compute between the forward pass and the next one or the
/// optimizer step, both in order of their begin.
std::vector<Interval> device_backward(const TraceEvents& trace, const IntervalSet& compute) {
  std::vector<Interval> backward;
  const auto next = [](const std::vector<Interval>& all, double from_s) {
    return std::ranges::partition_point(all,
                                        [&](const Interval& one) { return one.begin_s < from_s; });
  };
  const IntervalSet forwards(trace.device_forward);  // a module's may lie in that of another
  for (const Interval& forward : forwards.pieces()) {
    const auto optimizer = next(trace.device_optimizer, forward.end_s);
    if (optimizer == trace.device_optimizer.end()) continue;
    const auto again = next(trace.device_forward, forward.end_s);
    const double until_s = again == trace.device_forward.end()
                               ? optimizer->begin_s
                               : std::min(optimizer->begin_s, again->begin_s);
    const auto after = next(compute.pieces(), until_s);
    if (after == compute.pieces().begin()) continue;
    const double end_s = std::min((after - 1)->end_s, until_s);
    if (end_s > forward.end_s) backward.push_back({forward.end_s, end_s});
  }
  return backward;
}

// --- the timeline --------------------------------------------------------------------------------

/// What iterations are made of: where they are, what computes, and when collectives were ready.
struct Parts {
  std::vector<TracedStep> steps;
  IntervalSet compute;
  Phases phases;
  std::vector<double> ready_s;  ///< of each collective of the trace
};

Parts parts_on_cpu(TraceEvents& trace, std::vector<TracedStep> steps) {
  return {std::move(steps),
          IntervalSet(std::move(trace.operators))
              .difference(IntervalSet(trace.calls))
              .difference(IntervalSet(trace.data)),
          {trace.forward, trace.backward, trace.optimizer},
          sort_by_calls(trace)};
}

Parts parts_on_device(TraceEvents& trace, const std::vector<TracedStep>& steps,
                      std::vector<std::string>& remarks) {
  Launches launches;
  for (const DeviceLaunch& launch : trace.launches)
    launches.emplace(launch.correlation, launch.when.begin_s);
  complete_from_calls(trace);
  for (auto* all : {&trace.device_forward, &trace.device_optimizer})
    std::ranges::sort(*all, begins_before);
  std::vector<Interval> kernels;
  for (const DeviceWork& work : trace.device_work)
    if (work.computes) kernels.push_back(work.when);
  Parts parts{device_steps(trace, steps, launches), IntervalSet(std::move(kernels)), {}, {}};
  if (parts.steps.empty()) {
    remarks.push_back(
        "an iteration launched no kernel, or one that runs before those of the iteration ahead of "
        "it: iterations are those of the CPU");
    parts.steps = steps;
  }
  parts.phases = {trace.device_forward, device_backward(trace, parts.compute),
                  trace.device_optimizer};
  const ComputeBefore before(trace.device_work, launches);
  for (const TracedCollective& collective : trace.collectives) {
    const double ready_s = before.end_s(launched_s(launches, collective.correlation));
    parts.ready_s.push_back(ready_s <= collective.when.begin_s ? ready_s : kNotMeasured);
  }
  return parts;
}

/// A collective as its iteration, which begins at `begin_s`, sees it.
TimelineCollective in_iteration(const TracedCollective& traced, double ready_s, double begin_s) {
  TimelineCollective collective;
  collective.facts = traced.facts;
  collective.when = {traced.when.begin_s - begin_s, traced.when.end_s - begin_s};
  if (std::isfinite(ready_s)) collective.ready_s = std::max(ready_s - begin_s, 0.0);
  return collective;
}

/// Each to the iteration in which it began.
void add_collectives(const TraceEvents& trace, const Parts& parts, RankTimeline& timeline) {
  std::vector<Interval> overhang;
  for (std::size_t i = 0; i < trace.collectives.size(); ++i) {
    const TracedCollective& traced = trace.collectives[i];
    const std::size_t at = step_at(parts.steps, traced.when.begin_s);
    if (at == parts.steps.size()) continue;
    const Interval& step = parts.steps[at].when;
    timeline.iterations[at].collectives.push_back(
        in_iteration(traced, parts.ready_s[i], step.begin_s));
    if (traced.when.end_s > step.end_s) overhang.push_back({step.end_s, traced.when.end_s});
  }
  const IntervalSet carried(std::move(overhang));
  for (std::size_t at = 0; at < parts.steps.size(); ++at)
    timeline.iterations[at].carried = cut(carried, parts.steps[at].when);
}

std::size_t checked_times(TraceEvents& trace) {
  const std::size_t events = trace.steps.size() + trace.operators.size() +
                             trace.device_work.size() + trace.collectives.size(),
                    steps = trace.steps.size();
  const std::size_t left_out = leave_out_implausible(trace);
  if (2 * left_out > events || (steps > 0 && trace.steps.empty()))
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' has {} of {} events with times that cannot be right",
                            trace.path.string(), left_out, events),
                "record it again, with a newer PyTorch or fewer iterations: schedule(active=5)");
  return left_out;
}

void add_remarks(const TraceEvents& trace, std::size_t implausible, RankTimeline& timeline) {
  if (trace.steps.empty())
    timeline.remarks.push_back(
        "no ProfilerStep#N: an iteration is from one optimizer step to the next");
  if (trace.without_time > 0)
    timeline.remarks.push_back(
        fmt::format("{} events without a valid time, left out", trace.without_time));
  if (implausible > 0)
    timeline.remarks.push_back(fmt::format(
        "{} with times that cannot be right (lost, too long, before their launch, or against the "
        "order of their stream): left out",
        count_text(implausible, "event")));
}

}  // namespace

RankTimeline rank_timeline(TraceEvents trace) {
  RankTimeline timeline{static_cast<const TracedProcess&>(trace), trace.rank.value_or(0),
                        trace.ranks.value_or(1), trace.ranks.has_value()};
  const std::size_t implausible = checked_times(trace);
  std::vector<TracedStep> steps = steps_of(trace);
  std::ranges::stable_sort(trace.collectives,
                           [](const TracedCollective& a, const TracedCollective& b) {
                             return begins_before(a.when, b.when);
                           });
  std::ranges::stable_sort(steps, [](const TracedStep& a, const TracedStep& b) {
    return begins_before(a.when, b.when);
  });
  Parts parts = trace.device_work.empty() ? parts_on_cpu(trace, std::move(steps))
                                          : parts_on_device(trace, steps, timeline.remarks);
  // In order of their begin: one ends at the latest where the next begins.
  for (std::size_t i = 1; i < parts.steps.size(); ++i)
    parts.steps[i - 1].when.end_s =
        std::min(parts.steps[i - 1].when.end_s, parts.steps[i].when.begin_s);
  for (const TracedStep& step : parts.steps) {
    TimelineIteration iteration;
    iteration.number = step.number;
    iteration.begin_s = step.when.begin_s;
    iteration.length_s = step.when.length_s();
    iteration.compute = cut(parts.compute, step.when);
    timeline.iterations.push_back(std::move(iteration));
  }
  place_phases(parts.phases, parts.steps, timeline.iterations);
  add_collectives(trace, parts, timeline);
  add_remarks(trace, implausible, timeline);
  return timeline;
}

}  // namespace gradsync::report
