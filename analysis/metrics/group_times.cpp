#include "analysis/metrics/group_times.h"

#include <algorithm>
#include <cmath>

#include "analysis/metrics/epoch_figures.h"

namespace gradsync::report {

namespace {

std::vector<EpochFigures> whole_epochs(const Run& run) {
  std::vector<EpochFigures> whole = epoch_figures(run);
  std::erase_if(whole, [](const EpochFigures& epoch) { return !epoch.whole; });
  return whole;
}

void keep_finite(std::vector<double>& values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
}

}  // namespace

std::string_view time_basis_name(TimeBasis basis) {
  return kTimeBasisNames[static_cast<std::size_t>(basis)];
}

GroupTimes group_times(const RunGroup& group) {
  GroupTimes times;
  auto& [iteration, training, running] = times.values_s;
  iteration = steady_values(group, Phase::kIteration);
  for (const Run* run : group.repeats) {
    const auto epochs = whole_epochs(*run);
    const bool several = epochs.size() > 1;
    times.first_epoch_only |= epochs.size() == 1 && epochs.front().epoch == 0;
    for (std::size_t e = several ? 1 : 0; e < epochs.size(); ++e) {
      training.push_back(epochs[e].training_s);
      running.push_back(epochs[e].running_s);
    }
  }
  for (auto& values : times.values_s)
    keep_finite(values);
  return times;
}

}  // namespace gradsync::report
