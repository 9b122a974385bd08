#include "analysis/metrics/split_figures.h"

#include <cmath>

#include "analysis/runs/columns.h"
#include "timing/statistics.h"

namespace gradsync::report {

SplitFigures::SplitFigures() {
  mean_s.fill(Statistics::kNone);
}

double SplitFigures::percent(Phase phase) const {
  return 1e2 * (*this)[phase] / (*this)[Phase::kIteration];
}

double SplitFigures::parts_s() const {
  return (*this)[Phase::kCompute] + (*this)[Phase::kExposed] + wait_part_s + (*this)[Phase::kOther];
}

double SplitFigures::gap() const {
  return std::abs(parts_s() / (*this)[Phase::kIteration] - 1);
}

bool waits_apart(const RunReader& run) {
  return run.info().schema >= 2;
}

std::vector<SplitFigures> split_figures(RunReader& run, const SteadyRows& steady) {
  std::vector<SplitFigures> all(run.ranks());
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const auto means = rank_means(run, steady, phase_blocks(static_cast<Phase>(phase)));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].mean_s[phase] = means[rank];
  }
  for (SplitFigures& figures : all) {
    figures.iterations = steady.kept();
    figures.wait_part_s = waits_apart(run) ? figures[Phase::kWait] : 0;
  }
  return all;
}

SplitFigures mean_of(const std::vector<SplitFigures>& ranks) {
  SplitFigures result;
  const auto mean_of_ranks = [&](auto value) {
    std::vector<double> values;
    for (const SplitFigures& rank : ranks)
      values.push_back(value(rank));
    return mean(values);
  };
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    result.mean_s[phase] =
        mean_of_ranks([phase](const SplitFigures& rank) { return rank.mean_s[phase]; });
  result.wait_part_s = mean_of_ranks([](const SplitFigures& rank) { return rank.wait_part_s; });
  if (!ranks.empty()) result.iterations = ranks.front().iterations;
  return result;
}

}  // namespace gradsync::report
