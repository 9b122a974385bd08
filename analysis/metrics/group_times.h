#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/metrics/run_group.h"

namespace gradsync::report {

/// What a time is the time of. Epochs cover the same images whatever the batch; iterations do not.
enum class TimeBasis { kIteration, kTraining, kRunning };
inline constexpr std::array<std::string_view, 3> kTimeBasisNames = {"iteration", "training time",
                                                                    "running time"};
std::string_view time_basis_name(TimeBasis basis);

/// The times of a group's repeats in seconds, slowest rank each:
///   iteration       of the iterations that are not warm-up (steady_values)
///   training time   of the whole epochs, the first left out where a run has more than one
///   running time    likewise
/// Empty where the runs hold none.
struct GroupTimes {
  std::array<std::vector<double>, kTimeBasisNames.size()> values_s;
  bool first_epoch_only = false;  ///< the epoch times are of first epochs

  const std::vector<double>& operator[](TimeBasis basis) const {
    return values_s[static_cast<std::size_t>(basis)];
  }
};

GroupTimes group_times(const RunGroup& group);

}  // namespace gradsync::report
