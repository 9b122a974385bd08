// SPDX-License-Identifier: BSD-3-Clause
#include "comm/hang_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/process.h"
#include "base/ranges.h"
#include "comm/single_copy.h"
#include "stats/clock.h"

namespace gradsync {

namespace {

constexpr std::array<std::string_view, 8> kActivityNames = {
    "start-up",           "waiting for data",        "forward",
    "backward",           "synchronization",         "optimizer",
    "between iterations", "after its last iteration"};
constexpr std::size_t kMostRanksDetailed = 8;
constexpr std::string_view kStopped = "Tt", kGone = "ZXx";

/// The collective that a rank is in.
struct Where {
  std::int64_t sequence;
  std::int32_t kind;
  auto operator<=>(const Where&) const = default;  // NOLINT(modernize-use-nullptr)
};

Where where(const RankReport& report) {
  return {report.sequence, report.kind};
}

/// The collective that most waiting ranks are in; of two equally many the earlier one.
Where common_collective(const std::vector<RankReport>& reports,
                        const std::vector<std::size_t>& waiting) {
  std::map<Where, int> ranks_in;
  for (const std::size_t i : waiting)
    ++ranks_in[where(reports[i])];
  return std::ranges::max_element(ranks_in,
                                  [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

/// The rank that has waited longest beyond its limit.
const RankReport& longest_waiting(const std::vector<RankReport>& reports) {
  return *std::ranges::max_element(reports, [](const RankReport& a, const RankReport& b) {
    const auto key = [](const RankReport& r) {
      return std::tuple(r.waits(), r.expired, r.waited_s);
    };
    return key(a) < key(b);
  });
}

/// What a rank waits in.
std::string wait_text(const RankReport& report) {
  if (report.kind == kLaunch) return "a kernel launch";
  return fmt::format("{} number {}",
                     kCollectiveNames[static_cast<std::size_t>(std::max(report.kind, 0))],
                     report.sequence);
}

std::string state_text(const RankReport& report) {
  if (!report.answers) return "its node does not answer";
  const bool works =
      report.phase == WatchedPhase::kTraining || report.phase == WatchedPhase::kFirstIterations;
  std::string text{works ? activity_name(report.activity) : phase_entry(report.phase).name};
  if (report.iteration >= 0) text += fmt::format(", iteration {}", report.iteration);
  if (report.process == 0 || kGone.find(report.process) != kGone.npos)
    return text + ", process gone";
  if (kStopped.find(report.process) != kStopped.npos) return text + ", process stopped";
  if (!report.runs()) return text + ", process does not run";
  if (report.kind >= 0) text += ", in " + wait_text(report);
  return text;
}

std::vector<int> ranks_of(const std::vector<RankReport>& reports,
                          const std::vector<std::size_t>& which) {
  return each(which, [&](std::size_t i) { return reports[i].rank; });
}

}  // namespace

bool RankReport::runs() const {
  return process != 0 && process != 'F' && kStopped.find(process) == kStopped.npos &&
         kGone.find(process) == kGone.npos;
}

HangView sort_ranks(const std::vector<RankReport>& reports) {
  HangView view;
  for (std::size_t i = 0; i < reports.size(); ++i)
    if (reports[i].waits()) view.waiting.push_back(i);
  if (view.waiting.empty()) return view;
  const Where common = common_collective(reports, view.waiting);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const RankReport& report = reports[i];
    const bool here = report.answers && report.runs();
    if (!here || (!report.waits() && report.sequence < common.sequence)) view.missing.push_back(i);
  }
  if (!view.missing.empty()) return view;
  // MPI ends a call on one rank by the progress of another, which may have left it already.
  for (std::size_t i = 0; i < reports.size(); ++i)
    if (!reports[i].waits()) view.missing.push_back(i);
  if (!view.missing.empty()) return view;
  std::vector<std::size_t> others;
  for (const std::size_t i : view.waiting)
    (where(reports[i]) == common ? others : view.missing).push_back(i);
  view.waiting = others;
  return view;
}

std::string_view activity_name(Activity activity) {
  return kActivityNames[static_cast<std::size_t>(activity)];
}

DiskWait disk_wait(const std::vector<RankReport>& reports, const HangView& view,
                   const WatchLimits& limits) {
  bool too_long = false;
  for (const std::size_t i : view.missing) {
    const RankReport& report = reports[i];
    if (!report.answers || !report.runs() ||
        phase_entry(report.phase).rule != LimitRule::kInputOutput)
      return DiskWait::kNone;
    too_long |= report.phase_s > limit_s(report.phase, limits, 0);
  }
  if (view.missing.empty()) return DiskWait::kNone;
  return too_long ? DiskWait::kTooLong : DiskWait::kInLimit;
}

std::string rank_list(const std::vector<int>& sorted) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, last = 0; first < sorted.size(); first = last + 1) {
    last = first;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1)
      ++last;
    parts.push_back(last == first ? std::to_string(sorted[first])
                                  : fmt::format("{}-{}", sorted[first], sorted[last]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string hang_text(const std::vector<RankReport>& reports, const std::vector<std::string>& hosts,
                      const std::string& why) {
  const HangView view = sort_ranks(reports);
  const RankReport& waits = longest_waiting(reports);
  const std::string state =
      why.empty() ? fmt::format("has waited {:.1f} s ({}: limit {:g} s)", waits.waited_s,
                                phase_entry(waits.phase).name, waits.limit_s)
                  : "cannot end: " + why;
  const std::string of_iteration =
      waits.iteration < 0 ? "" : fmt::format(" of iteration {}", waits.iteration);
  std::string text =
      fmt::format("hang: {}{} {}; missing ranks: {}", wait_text(waits), of_iteration, state,
                  view.missing.empty() ? "none: all ranks are in it"
                                       : rank_list(ranks_of(reports, view.missing)));
  if (!view.waiting.empty())
    text += fmt::format("; waiting ranks: {}", rank_list(ranks_of(reports, view.waiting)));
  for (std::size_t i = 0; i < std::min(view.missing.size(), kMostRanksDetailed); ++i) {
    const RankReport& report = reports[view.missing[i]];
    text += fmt::format("{} rank {} ({}): {}", i == 0 ? "." : ";", report.rank,
                        hosts[static_cast<std::size_t>(report.rank)], state_text(report));
  }
  return text;
}

std::string hang_fix(const std::vector<RankReport>& reports, const std::vector<std::string>& hosts,
                     const WatchLimits& limits) {
  std::vector<std::string> host_of;
  std::vector<std::uint64_t> namespaces;
  for (const RankReport& report : reports) {
    host_of.push_back(hosts[static_cast<std::size_t>(report.rank)]);
    namespaces.push_back(report.waits() ? report.cma_namespace : 0);
  }
  const auto apart = hosts_where_cma_fails(host_of, namespaces);
  const bool all_wait =
      std::ranges::all_of(reports, [](const RankReport& report) { return report.waits(); });
  if (all_wait && !apart.empty())
    return fmt::format(
        "all ranks wait, and ranks of {} are in different user namespaces (a container each), "
        "where long messages hang in Open MPI 4: {}",
        fmt::join(apart, ", "), kCmaFix);
  if (all_wait && longest_waiting(reports).phase == WatchedPhase::kTransport)
    return "no rank is connected to all others: check the network that MPI uses; with --transport "
           "nccl NCCL_DEBUG=INFO shows how far NCCL came, NCCL_SOCKET_IFNAME names its network "
           "interface, and --transport mpi needs no NCCL";
  const auto option = limit_option(longest_waiting(reports).phase, limits);
  return "check the hosts of the missing ranks" +
         (option.empty() ? std::string()
                         : fmt::format("; if they are only slow, {} sets the limit", option));
}

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// Between the reports of two ranks, and at most: Open MPI's launcher sends the others SIGCONT at
/// once and SIGTERM a second later.
constexpr double kTurn_s = 1.5, kLastTurn_s = 6;
/// How much earlier than here the limit may end on another rank.
constexpr double kOthersMayEnd_s = 1;

}  // namespace

DeadlineGuard::DeadlineGuard(std::string program, Error error, double limit_s, int rank)
    : program_(std::move(program)),
      error_(std::move(error)),
      thread_([=, this] { watch(limit_s, std::min(kTurn_s * rank, kLastTurn_s)); }) {}

DeadlineGuard::~DeadlineGuard() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void DeadlineGuard::watch(double limit_s, double turn_s) {
  RunningTime ran(now_s());
  std::optional<DefaultSignal> term;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTick, [&] { return over_; })) {
    const double ran_s = ran.advance_to(now_s());
    if (ran_s > limit_s - kOthersMayEnd_s && !term) term.emplace(SIGTERM);
    if (ran_s <= limit_s + turn_s) continue;
    print_error(program_, error_);
    std::fflush(stderr);
    ::_exit(error_.exit_code());
  }
}

}  // namespace gradsync
