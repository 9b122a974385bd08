#include "analysis/metrics/columns.h"

#include <span>

#include "timing/statistics.h"

namespace gradsync {

std::vector<double> mean_over_ranks(const Matrix& matrix) {
  std::vector<double> means;
  means.reserve(matrix.rows);
  for (std::size_t row = 0; row < matrix.rows; ++row)
    means.push_back(mean(std::span(matrix.values).subspan(row * matrix.columns, matrix.columns)));
  return means;
}

}  // namespace gradsync
