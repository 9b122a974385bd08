#include <cmath>
#include <vector>

#include "optim/chunks.h"

namespace gradsync {

namespace {

double sum_of_range(const float* values, std::int64_t begin, std::int64_t end) {
  double sum = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

double sum_of_squares(const float* values, std::int64_t count) {
  if (count <= kGrain) return sum_of_range(values, 0, count);
  std::vector<double> sums(static_cast<std::size_t>((count + kGrain - 1) / kGrain));
  at::parallel_for(
      0, static_cast<std::int64_t>(sums.size()), 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t range = first; range < last; ++range)
          sums[static_cast<std::size_t>(range)] =
              sum_of_range(values, range * kGrain, std::min(count, (range + 1) * kGrain));
      });
  double sum = 0;
  for (const double part : sums)
    sum += part;
  return sum;
}

double norm(const float* values, std::int64_t count) {
  return std::sqrt(sum_of_squares(values, count));
}

}  // namespace gradsync
