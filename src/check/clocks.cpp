#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "check/facts.h"
#include "stats/clock.h"

namespace gradsync::check {

namespace {

/// Beyond it, times of files and logs of two nodes appear in the wrong order.
constexpr double kMostApart_s = 0.5;
/// Beyond it, a straggler's wait is within the error of the clocks.
constexpr double kMostUncertain_s = 1e-3;

double wall_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Finding judge_day(const Ranks<ClockFacts>& ranks) {
  const std::string id = "clocks.time-of-day";
  std::vector<std::string> apart;
  std::set<std::string> hosts;
  double most_s = 0;
  for (const auto& rank : ranks) {
    if (!hosts.insert(rank.host).second) continue;
    const double ahead = ahead_s(rank.facts, ranks.front().facts);
    most_s = std::max(most_s, std::abs(ahead));
    if (!(std::abs(ahead) <= kMostApart_s))
      apart.push_back(fmt::format("{} is {:+.3f} s ± {} from {}", rank.host, ahead,
                                  format_duration(rank.facts.uncertainty_s), ranks.front().host));
  }
  if (hosts.size() == 1) return skipped(id, "one host");
  if (!apart.empty())
    return warned(id, first_few(apart),
                  "as root on these nodes: chronyc makestep, or systemctl restart chronyd");
  return passed(id, fmt::format("{} hosts within {}", hosts.size(), format_duration(most_s)));
}

Finding judge_alignment(const Ranks<ClockFacts>& ranks) {
  const std::string id = "clocks.alignment";
  if (ranks.size() == 1) return skipped(id, "one rank");
  const auto worst = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.facts.uncertainty_s < b.facts.uncertainty_s;
  });
  const std::string seen = fmt::format("aligned to ± {:.1f} µs, least well {}",
                                       worst->facts.uncertainty_s * 1e6, worst->name());
  if (worst->facts.uncertainty_s <= kMostUncertain_s) return passed(id, seen);
  return warned(id, seen,
                "a slow link or a busy host: see `links` and `binding`; waits shorter than this "
                "are within the clock error");
}

}  // namespace

double ahead_s(const ClockFacts& facts, const ClockFacts& of_root) {
  return facts.wall_minus_steady_s - of_root.wall_minus_steady_s - facts.offset_s;
}

std::vector<Finding> judge_clocks(const Ranks<ClockFacts>& ranks) {
  return {judge_day(ranks), judge_alignment(ranks)};
}

CheckResult check_clocks(Job& job, const CheckOptions&) {
  const SteadyOffset reading = job.read_clock();
  const ClockFacts mine{wall_now_s() - now_s(), reading.offset_s, reading.uncertainty_s};
  return judged(job, mine,
                [](const Ranks<ClockFacts>& ranks) { return CheckResult{judge_clocks(ranks)}; });
}

}  // namespace gradsync::check
