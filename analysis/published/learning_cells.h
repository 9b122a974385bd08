#pragma once

#include <vector>

#include "analysis/published/printed_epochs.h"
#include "support/table.h"

namespace gradsync::report::published {

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
