#pragma once

#include <vector>

#include "record/reader.h"

namespace gradsync {

/// The values of one rank, in the order of the iterations, of those that `keep` holds for; it is
/// called with the row.
template <typename Keep>
std::vector<double> rank_column(const Matrix& matrix, std::size_t rank, Keep keep) {
  std::vector<double> values;
  values.reserve(matrix.rows);
  for (std::size_t row = 0; row < matrix.rows; ++row)
    if (keep(row)) values.push_back(matrix.at(row, rank));
  return values;
}

/// Mean over the ranks of each iteration; NaN where no rank has a value.
std::vector<double> mean_over_ranks(const Matrix& matrix);

}  // namespace gradsync
