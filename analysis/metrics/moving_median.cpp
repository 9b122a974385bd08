#include "analysis/metrics/moving_median.h"

#include <algorithm>
#include <span>

#include "timing/statistics.h"

namespace gradsync::report {

std::vector<double> moving_median(const std::vector<double>& values, std::size_t window) {
  const std::size_t half = window / 2;
  std::vector<double> medians;
  medians.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t begin = i - std::min(i, half);
    const std::size_t end = std::min(i + half + 1, values.size());
    medians.push_back(median(std::span(values).subspan(begin, end - begin)));
  }
  return medians;
}

}  // namespace gradsync::report
