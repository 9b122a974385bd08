#include "analysis/metrics/split_figures.h"

#include <cmath>

#include "analysis/metrics/columns.h"
#include "timing/statistics.h"

namespace gradsync::report {

SplitFigures::SplitFigures() {
  mean_s.fill(Statistics::kNone);
}

double SplitFigures::percent(Phase phase) const {
  return 1e2 * (*this)[phase] / (*this)[Phase::kIteration];
}

double SplitFigures::gap() const {
  const double parts = (*this)[Phase::kCompute] + (*this)[Phase::kExposed] + (*this)[Phase::kOther];
  return std::abs(parts / (*this)[Phase::kIteration] - 1);
}

std::vector<SplitFigures> split_figures(RunReader& run, const SteadyRows& steady) {
  std::vector<SplitFigures> all(run.ranks());
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const auto means = rank_means(run, steady, phase_blocks(static_cast<Phase>(phase)));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].mean_s[phase] = means[rank];
  }
  for (SplitFigures& figures : all)
    figures.iterations = steady.kept();
  return all;
}

SplitFigures mean_of(const std::vector<SplitFigures>& ranks) {
  SplitFigures result;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    std::vector<double> values;
    for (const SplitFigures& rank : ranks)
      values.push_back(rank.mean_s[phase]);
    result.mean_s[phase] = mean(values);
  }
  if (!ranks.empty()) result.iterations = ranks.front().iterations;
  return result;
}

}  // namespace gradsync::report
