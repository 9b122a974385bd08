#pragma once

#include <limits>
#include <string>
#include <vector>

#include "analysis/published/audit.h"
#include "base/table.h"

namespace gradsync::report::published {

/// What one table of a report prints of one epoch of one setting; NaN for what it does not.
struct PrintedEpoch {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  const Row* row = nullptr;  ///< the first of its lines, for the setting
  std::string number;        ///< "2", or "" where the report does not say which
  double epoch_s = kNone, training_s = kNone, running_s = kNone, iteration_s = kNone;
  /// Of training or test, as train_… and test_… where the report says which, else without.
  double loss = kNone, accuracy = kNone;
  double train_loss = kNone, train_accuracy = kNone, test_loss = kNone, test_accuracy = kNone;
  std::vector<std::size_t> lines;

  /// Ranks times batch; NaN where the report does not say both.
  double batch_global() const;
};

/// In the order of the file.
std::vector<PrintedEpoch> printed_epochs(const Study& study);

/// "full batch: one step over all 50000 images, as any larger batch", or nothing.
std::string full_batch_remark(const PrintedEpoch& epoch, const AuditOptions& options);

/// How well a printed epoch did: loss and accuracy, of training, of test, and where the report does
/// not say of which. What it does not print is n/a.
std::vector<Column> learning_columns();
std::vector<Cell> learning_cells(const PrintedEpoch& epoch);

/// `more` behind `cells`.
template <typename T>
void append(std::vector<T>& cells, const std::vector<T>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

}  // namespace gradsync::report::published
