// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

namespace gradsync {

/// A matrix M of gradients in host memory as PᵀQ of a lower rank (Vogels, Karimireddy and Jaggi,
/// "PowerSGD", NeurIPS 2019). What PᵀQ leaves out is taken off M when the next gradient is added to
/// it: each pass over the matrix costs as much as memory takes. Each result depends on its inputs
/// alone and is summed in one order, so it is the same on all ranks, whatever their numbers of
/// threads. Calls take a part of the rows or columns, so that threads can share the work.
struct LowRank {
  float* gradient;  ///< [rows, columns]
  float* matrix;    ///< [rows, columns]: M
  std::int64_t rows, columns, rank;
  float* p;               ///< [rank, rows]
  float* q;               ///< [rank, columns]
  const float* q_before;  ///< [rank, columns]: what q was for the last `decode`

  /// M = M − pᵀ q_before + gradient; p = M q.
  void encode(std::int64_t first_row, std::int64_t last_row) const;
  /// q = Mᵀ p.
  void project(std::int64_t first_column, std::int64_t last_column) const;
  /// gradient = pᵀ q.
  void decode(std::int64_t first_row, std::int64_t last_row) const;
  /// M = M − pᵀ q, as `encode` would; the caller sets p to 0.
  void subtract(std::int64_t first_row, std::int64_t last_row) const;
};

/// Makes `rank` vectors, one after the other, orthonormal. One that depends on those before it is
/// replaced by another, the same on all ranks, so that no direction is lost for good.
void orthonormalize(std::span<float> vectors, std::int64_t rank);

/// Values near a normal distribution, a pure function of `key`.
void draw_normal(std::span<float> values, std::uint64_t key);

/// Finds the values that are largest in magnitude, as many as `indices` takes, of equal ones the
/// first; indices rise. NaN is larger than any number. Requires no more indices than values.
void find_largest(std::span<const float> values, std::span<std::int32_t> indices);

}  // namespace gradsync
