#include "analysis/metrics/accuracy_at.h"

#include <algorithm>

#include "analysis/metrics/epoch_figures.h"

namespace gradsync::report {

AccuracyAt accuracy_at(const RunGroup& group, std::int64_t epoch) {
  AccuracyAt at;
  for (const Run* run : group.repeats)
    for (const EpochFigures& one : epoch_figures(*run)) {
      if (one.epoch + 1 != epoch) continue;
      at.epoch = epoch;
      at.whole &= one.whole;
      at.train_loss.push_back(one.train_loss);
      at.train_percent.push_back(1e2 * one.train_accuracy);
      at.test_loss.push_back(one.test_loss);
      at.test_percent.push_back(1e2 * one.test_accuracy);
    }
  return at;
}

std::int64_t last_common_epoch(const RunGroup& group) {
  std::int64_t last = 0;
  for (const Run* run : group.repeats) {
    const auto epochs = epoch_figures(*run);
    if (epochs.empty()) continue;
    const std::int64_t own = epochs.back().epoch + 1;
    last = last == 0 ? own : std::min(last, own);
  }
  return last;
}

}  // namespace gradsync::report
