#include "analysis/metrics/columns.h"

#include <algorithm>
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

std::size_t steady_iterations(const IterationIndex& index) {
  return static_cast<std::size_t>(std::count(index.warmup.begin(), index.warmup.end(), false));
}

}  // namespace gradsync
