#pragma once

#include <cstdint>
#include <vector>

#include "analysis/metrics/run_group.h"

namespace gradsync::report {

/// What the repeats of a group had learnt at the end of one epoch: a value a repeat, mean over its
/// ranks. Accuracies in percent.
struct AccuracyAt {
  std::int64_t epoch = 0;  ///< from 1; 0: no repeat has it
  std::vector<double> train_loss, train_percent, test_loss, test_percent;
  bool whole = true;  ///< false: --iterations ended it before its end
};

/// `epoch` from 1. Repeats that did not reach it are left out.
AccuracyAt accuracy_at(const RunGroup& group, std::int64_t epoch);

/// The last epoch that all repeats of the group that finished one have, from 1; 0 if
/// none did.
std::int64_t last_common_epoch(const RunGroup& group);

}  // namespace gradsync::report
