// SPDX-License-Identifier: BSD-3-Clause
#include "sync/compress.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "stats/random.h"

namespace gradsync {

namespace {

/// Sums side by side, which the compiler keeps in vector registers.
constexpr std::int64_t kLanes = 16;
/// Columns that are worked on at a time, so that they stay in the first cache.
constexpr std::int64_t kColumns = 1024;

float dot(const float* a, const float* b, std::int64_t count) {
  std::array<float, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      sums[static_cast<std::size_t>(lane)] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (; i < count; ++i)
    sum += a[i] * b[i];
  for (const float lane : sums)
    sum += lane;
  return sum;
}

/// to += factor · from
void add(float* to, float factor, const float* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] += factor * from[i];
}

}  // namespace

void LowRank::encode(std::int64_t first_row, std::int64_t last_row) const {
  for (std::int64_t row = first_row; row < last_row; ++row) {
    float* values = error + row * columns;
    add(values, 1, gradient + row * columns, columns);
    for (std::int64_t c = 0; c < rank; ++c)
      p[c * rows + row] = dot(values, q + c * columns, columns);
  }
}

void LowRank::project(std::int64_t first_column, std::int64_t last_column) const {
  for (std::int64_t first = first_column; first < last_column; first += kColumns) {
    const std::int64_t count = std::min(kColumns, last_column - first);
    for (std::int64_t c = 0; c < rank; ++c)
      std::fill_n(q + c * columns + first, count, 0.0f);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t c = 0; c < rank; ++c)
        add(q + c * columns + first, p[c * rows + row], error + row * columns + first, count);
  }
}

void LowRank::decode(std::int64_t first_row, std::int64_t last_row) const {
  for (std::int64_t row = first_row; row < last_row; ++row) {
    float* values = gradient + row * columns;
    std::fill_n(values, columns, 0.0f);
    for (std::int64_t c = 0; c < rank; ++c)
      add(values, p[c * rows + row], q + c * columns, columns);
    add(error + row * columns, -1, values, columns);
  }
}

void draw_normal(std::span<float> values, std::uint64_t key) {
  // Twelve uniform numbers have the variance 1 (Irwin and Hall).
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = -6;
    for (std::uint64_t draw = 0; draw < 12; ++draw)
      sum += std::ldexp(static_cast<double>(mix(key, stream::kPowerSgd, i, draw) >> 11), -53);
    values[i] = static_cast<float>(sum);
  }
}

void orthonormalize(std::span<float> vectors, std::int64_t rank) {
  const auto count = static_cast<std::int64_t>(vectors.size()) / rank;
  for (std::int64_t c = 0; c < rank; ++c) {
    float* vector = vectors.data() + c * count;
    // A second time takes what rounding left of those before (Giraud et al., 2005).
    for (int attempt = 0;; ++attempt) {
      const float before = std::sqrt(dot(vector, vector, count));
      for (int time = 0; time < 2; ++time)
        for (std::int64_t other = 0; other < c; ++other) {
          const float* with = vectors.data() + other * count;
          add(vector, -dot(with, vector, count), with, count);
        }
      const float length = std::sqrt(dot(vector, vector, count));
      // What is not a number is left to the guard of the gradients.
      if (!(length <= 1e-6f * before)) {
        for (std::int64_t i = 0; i < count; ++i)
          vector[i] /= length;
        break;
      }
      draw_normal({vector, static_cast<std::size_t>(count)},
                  static_cast<std::uint64_t>(c + attempt * rank));
    }
  }
}

void find_largest(std::span<const float> values, std::span<std::int32_t> indices) {
  if (indices.empty()) return;
  // The bits of a float without its sign rise with it: the upper ones sort values into bins.
  constexpr int kShift = 20;
  const auto bits = [&](std::size_t i) {
    return std::bit_cast<std::uint32_t>(values[i]) << 1 >> 1;
  };
  std::vector<std::size_t> bins(std::size_t{1} << (31 - kShift));
  for (std::size_t i = 0; i < values.size(); ++i)
    ++bins[bits(i) >> kShift];
  std::size_t above = 0, bin = bins.size() - 1;
  while (above + bins[bin] < indices.size())
    above += bins[bin--];
  // The bin that holds the last one is taken in part: its largest.
  std::vector<std::uint32_t> candidates;
  candidates.reserve(bins[bin]);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (bits(i) >> kShift == bin) candidates.push_back(bits(i));
  const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(indices.size() - above - 1);
  std::nth_element(candidates.begin(), last, candidates.end(), std::greater<>());
  const std::uint32_t least = *last;
  std::size_t equal = indices.size() - above -
                      static_cast<std::size_t>(std::count_if(
                          candidates.begin(), candidates.end(),
                          [&](std::uint32_t candidate) { return candidate > least; }));
  std::size_t taken = 0;
  for (std::size_t i = 0; i < values.size() && taken < indices.size(); ++i) {
    const std::uint32_t value = bits(i);
    if (value < least || (value == least && equal == 0)) continue;
    if (value == least) --equal;
    indices[taken++] = static_cast<std::int32_t>(i);
  }
}

}  // namespace gradsync
