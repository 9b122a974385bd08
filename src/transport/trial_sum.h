// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

/// A sum over ranks whose result is known: whole numbers, exact in float32 up to 20,000 ranks.
namespace gradsync::trial_sum {

/// Factor of a rank's values.
inline int factor_of(int rank) {
  return rank % 16 + 1;
}

/// Factor of the sum's values.
inline int factor_of_all(int ranks) {
  int sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += factor_of(rank);
  return sum;
}

inline float value(int factor, std::size_t i) {
  return static_cast<float>(factor * (static_cast<int>(i % 97) - 48));
}

inline std::vector<float> values(int factor, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = value(factor, i);
  return all;
}

}  // namespace gradsync::trial_sum
