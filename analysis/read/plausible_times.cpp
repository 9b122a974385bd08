#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/read/trace_events.h"

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
    const auto place =
        std::upper_bound(ends.begin(), ends.end(), values[i],
                         [&](double value, std::size_t end) { return value > values[end]; });
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
  std::stable_sort(steps.begin(), steps.end(),
                   [](const TracedStep& a, const TracedStep& b) { return a.number < b.number; });
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

/// Work of one stream, with its launch.
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
  const auto count = std::count_if(work.begin(), work.end(), too_early);
  if (2 * static_cast<std::size_t>(count) > work.size()) return;
  for (Launched& one : work)
    if (too_early(one)) leave_out(*one.when);
}

/// In order of launch. Threads may launch at the same time, which says nothing of the order.
void leave_out_of_order(std::vector<Launched>& stream) {
  std::vector<double> begins_s;
  for (const Launched& one : stream)
    begins_s.push_back(one.when->begin_s);
  const std::vector<bool> rising = longest_rising(begins_s);
  std::vector<Launched> kept;
  for (std::size_t i = 0; i < stream.size(); ++i)
    if (rising[i]) kept.push_back(stream[i]);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (rising[i]) continue;
    const Launched& one = stream[i];
    auto after = std::partition_point(kept.begin(), kept.end(), [&](const Launched& other) {
      return other.launch.begin_s < one.launch.begin_s;
    });
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
  std::stable_sort(stream.begin(), stream.end(), [](const Launched& a, const Launched& b) {
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
  std::stable_sort(all.begin(), all.end(),
                   [](const Work& a, const Work& b) { return a.correlation < b.correlation; });
  std::vector<DeviceLaunch> launches = trace.launches;
  std::stable_sort(launches.begin(), launches.end(),
                   [](const auto& a, const auto& b) { return a.correlation < b.correlation; });
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
    std::stable_sort(work.begin(), work.end(), [](const Launched& a, const Launched& b) {
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
  if (trace.steps.empty()) std::for_each(trace.optimizer.begin(), trace.optimizer.end(), add);
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

}  // namespace gradsync::report
