// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>

#include "base/function_ref.h"
#include "model/replica.h"
#include "stats/random.h"
#include "sync/compress.h"

namespace gradsync {

namespace {

/// Sums side by side, which the compiler keeps in vector registers.
constexpr std::int64_t kLanes = 16;
/// Columns that are worked on at a time, so that they stay in the first cache.
constexpr std::int64_t kColumns = 1024;
/// Values of a register. Left to itself the compiler makes several passes of what is one here.
#if defined(__AVX512F__)
constexpr std::int64_t kWidth = 16;
#elif defined(__AVX__)
constexpr std::int64_t kWidth = 8;
#else
constexpr std::int64_t kWidth = 4;
#endif
using Values = float __attribute__((vector_size(kWidth * sizeof(float))));

/// The first `count` values are read; the others are 0.
template <typename Count>
Values load(const float* from, Count count) {
  Values values{};
  std::memcpy(&values, from, static_cast<std::size_t>(count) * sizeof(float));
  return values;
}

template <typename Count>
void store(float* to, const Values& values, Count count) {
  std::memcpy(to, &values, static_cast<std::size_t>(count) * sizeof(float));
}

/// Calls `body` with the place and the number of values of each register of [first, last).
template <typename Body>
void in_registers(std::int64_t first, std::int64_t last, Body body) {
  for (; first + kWidth <= last; first += kWidth)
    body(first, std::integral_constant<std::int64_t, kWidth>());
  if (first < last) body(first, last - first);
}

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

/// Its matrices in host memory. Calls take a part of the rows or columns.
struct LowRank::Host {
  float* gradient;  ///< [rows, columns]
  float* matrix;    ///< [rows, columns]: M
  std::int64_t rows, columns, rank;
  float* p;               ///< [rank, rows]
  float* q;               ///< [rank, columns]
  const float* q_before;  ///< [rank, columns]

  /// Row `row` of pᵀ `factors`, `count` values from column `at` on.
  template <typename Count>
  Values product(const float* factors, std::int64_t row, std::int64_t at, Count count) const {
    Values sum{};
#pragma GCC unroll 4
    for (std::int64_t c = 0; c < rank; ++c)
      sum += p[c * rows + row] * load(factors + c * columns + at, count);
    return sum;
  }

  void encode(std::int64_t first_row, std::int64_t last_row) const;
  void project(std::int64_t first_column, std::int64_t last_column) const;
  void decode(std::int64_t first_row, std::int64_t last_row) const;
  void subtract(std::int64_t first_row, std::int64_t last_row) const;
};

void LowRank::Host::encode(std::int64_t first_row, std::int64_t last_row) const {
  std::vector<Values> sums(static_cast<std::size_t>(rank));
  for (std::int64_t row = first_row; row < last_row; ++row) {
    float* to = matrix + row * columns;
    std::fill(sums.begin(), sums.end(), Values{});
    in_registers(0, columns, [&](std::int64_t at, auto count) {
      const Values values = load(to + at, count) - product(q_before, row, at, count) +
                            load(gradient + row * columns + at, count);
      store(to + at, values, count);
#pragma GCC unroll 4
      for (std::int64_t c = 0; c < rank; ++c)
        sums[static_cast<std::size_t>(c)] += values * load(q + c * columns + at, count);
    });
    for (std::int64_t c = 0; c < rank; ++c) {
      float& sum = p[c * rows + row] = 0;
      for (std::int64_t i = 0; i < kWidth; ++i)
        sum += sums[static_cast<std::size_t>(c)][i];
    }
  }
}

void LowRank::Host::project(std::int64_t first_column, std::int64_t last_column) const {
  constexpr std::int64_t kRows = 4;  // at a time, so that q is read and written once for them
  for (std::int64_t first = first_column; first < last_column; first += kColumns) {
    const std::int64_t last = std::min(first + kColumns, last_column);
    for (std::int64_t c = 0; c < rank; ++c)
      std::fill(q + c * columns + first, q + c * columns + last, 0.0f);
    std::int64_t row = 0;
    for (; row + kRows <= rows; row += kRows)
      in_registers(first, last, [&](std::int64_t at, auto count) {
        const float* from = matrix + row * columns + at;
        const Values row_0 = load(from, count), row_1 = load(from + columns, count),
                     row_2 = load(from + 2 * columns, count),
                     row_3 = load(from + 3 * columns, count);
#pragma GCC unroll 4
        for (std::int64_t c = 0; c < rank; ++c) {
          const float* factors = p + c * rows + row;
          float* to = q + c * columns + at;
          store(to,
                load(to, count) + factors[0] * row_0 + factors[1] * row_1 + factors[2] * row_2 +
                    factors[3] * row_3,
                count);
        }
      });
    for (; row < rows; ++row)
      for (std::int64_t c = 0; c < rank; ++c)
        add(q + c * columns + first, p[c * rows + row], matrix + row * columns + first,
            last - first);
  }
}

void LowRank::Host::decode(std::int64_t first_row, std::int64_t last_row) const {
  for (std::int64_t row = first_row; row < last_row; ++row)
    in_registers(0, columns, [&](std::int64_t at, auto count) {
      store(gradient + row * columns + at, product(q, row, at, count), count);
    });
}

void LowRank::Host::subtract(std::int64_t first_row, std::int64_t last_row) const {
  for (std::int64_t row = first_row; row < last_row; ++row)
    in_registers(0, columns, [&](std::int64_t at, auto count) {
      float* to = matrix + row * columns + at;
      store(to, load(to, count) - product(q, row, at, count), count);
    });
}

LowRank::Host LowRank::on_host() const {
  return {gradient_.data_ptr<float>(),
          matrix_.data_ptr<float>(),
          gradient_.size(0),
          gradient_.size(1),
          p_.size(0),
          p_.data_ptr<float>(),
          q_.data_ptr<float>(),
          q_before_.data_ptr<float>()};
}

namespace {

void in_parts(std::int64_t count, FunctionRef<void(std::int64_t, std::int64_t)> body) {
  constexpr std::int64_t kLeast = 16;  // worth a thread
  at::parallel_for(0, count, kLeast, body);
}

void make_orthonormal(torch::Tensor& vectors) {
  if (vectors.is_cpu())
    orthonormalize(values_of(vectors), vectors.size(0));
  else
    vectors.copy_(std::get<0>(at::linalg_qr(vectors.t())).t());
}

}  // namespace

LowRank::Sizes LowRank::sizes_of(const torch::Tensor& parameter, std::int64_t rank_at_most) {
  const std::int64_t values = parameter.numel();
  const std::int64_t rows = parameter.dim() == 0 ? 1 : parameter.size(0);
  const std::int64_t columns = values / std::max<std::int64_t>(rows, 1);
  const std::int64_t rank = std::min({rank_at_most, rows, columns});
  if (2 * rank * (rows + columns) >= values) return {{1, values}, {0, 0}};
  return {{rank, rows}, {rank, columns}};
}

LowRank::LowRank(const torch::Tensor& parameter, torch::Tensor p, torch::Tensor q,
                 std::uint64_t key)
    : p_(std::move(p)), q_(std::move(q)) {
  const std::int64_t rows = whole() ? 1 : p_.size(1), columns = parameter.numel() / rows;
  gradient_ = parameter.grad().as_strided({rows, columns}, {columns, 1});
  if (whole()) return;
  matrix_ = torch::zeros_like(gradient_);
  q_before_ = torch::zeros_like(q_);
  const torch::Tensor drawn = torch::empty(q_.sizes());
  draw_normal(values_of(drawn), key);
  q_.copy_(drawn);
}

void LowRank::encode() {
  if (whole()) return void(p_.copy_(gradient_));
  q_before_.copy_(q_);
  make_orthonormal(q_);
  if (!q_.is_cpu()) {
    matrix_.addmm_(p_.t(), q_before_, 1, -1).add_(gradient_);
    torch::mm_out(p_, q_, matrix_.t());
    return;
  }
  const Host host = on_host();
  in_parts(host.rows, [&](std::int64_t from, std::int64_t to) { host.encode(from, to); });
}

void LowRank::project() {
  if (whole()) return void(gradient_.copy_(p_));
  make_orthonormal(p_);
  if (!q_.is_cpu()) {
    torch::mm_out(q_, p_, matrix_);
    return;
  }
  const Host host = on_host();
  in_parts(host.columns, [&](std::int64_t from, std::int64_t to) { host.project(from, to); });
}

void LowRank::decode() {
  if (whole()) return;
  if (!q_.is_cpu()) {
    torch::mm_out(gradient_, p_.t(), q_);
    return;
  }
  const Host host = on_host();
  in_parts(host.rows, [&](std::int64_t from, std::int64_t to) { host.decode(from, to); });
}

// Bit for bit what the next `encode` would add to, which p of 0 then leaves as it is.
torch::Tensor LowRank::error() {
  if (q_.is_cpu())
    on_host().subtract(0, matrix_.size(0));
  else
    matrix_.addmm_(p_.t(), q_, 1, -1);
  p_.zero_();
  return matrix_;
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
