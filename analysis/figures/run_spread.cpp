#include "analysis/figures/run_spread.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// Medians of single runs, in seconds.
struct SameWork {
  std::string model;
  const char* what;
  std::vector<double> medians_s;
};

void add_medians(const RunGroup& group, std::vector<double>& medians_s) {
  for (const Run* run : group.repeats)
    if (const double middle_s = median(steady_values({{run}}, Phase::kIteration)); middle_s > 0)
      medians_s.push_back(middle_s);
}

/// What makes two runs on one rank the same work.
std::vector<std::string> work_on_one_rank(const Run& run) {
  using enum OptionRole;
  std::vector<std::string> key = option_values(run, options_of({kStep, kTraining, kMachine}));
  key.insert(key.end(),
             {run.model, std::to_string(run.batch_per_rank), std::to_string(run.batch_global)});
  return key;
}

std::vector<SameWork> same_work(const std::vector<RunGroup>& groups) {
  std::vector<SameWork> sets;
  std::map<std::vector<std::string>, SameWork> on_one_rank;
  for (const RunGroup& group : groups) {
    const Run& run = group.first();
    add_medians(group, sets.emplace_back(SameWork{run.model, "repeats of a cell", {}}).medians_s);
    if (run.ranks != 1 || !is_known_work(run)) continue;
    SameWork& control = on_one_rank[work_on_one_rank(run)];
    control.model = run.model;
    control.what = "runs on one rank";
    add_medians(group, control.medians_s);
  }
  for (const auto& control : on_one_rank)
    sets.push_back(control.second);
  return sets;
}

}  // namespace

RunSpreads run_spreads(const std::vector<RunGroup>& groups) {
  RunSpreads spreads;
  for (const SameWork& set : same_work(groups)) {
    RunSpread& spread = spreads[set.model];
    if (set.medians_s.size() < 2) continue;
    const auto [least, most] = std::minmax_element(set.medians_s.begin(), set.medians_s.end());
    if (spread.known() && *most / *least <= spread.factor) continue;
    spread = {*most / *least, fmt::format("{} {}, {} to {}", set.medians_s.size(), set.what,
                                          format_duration(*least), format_duration(*most))};
  }
  return spreads;
}

std::string_view spread_word(const Estimate& ratio, const RunSpread& spread) {
  const std::string_view word = ratio_word(ratio);
  if (word != "faster" && word != "slower") return word;
  if (!spread.known()) return "one run each";
  const Estimate longer{ratio.value, ratio.low / spread.factor, ratio.high * spread.factor,
                        ratio.count};
  return longer.holds(1) ? "within the spread" : word;
}

std::string spread_text(const RunSpread& spread, const std::string& model) {
  return fmt::format("runs of the same work differ by up to {:.1f} % ({}: {})",
                     1e2 * (spread.factor - 1), model, spread.of);
}

}  // namespace gradsync::report
