// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <torch/types.h>

namespace gradsync {

/// A gradient M as pᵀ q of a lower rank (Vogels, Karimireddy and Jaggi, "PowerSGD", NeurIPS 2019),
/// or whole, in p, where p and q are not less than half of it, as PyTorch's hook has it. Rows are
/// the first dimension of the parameter, columns all others as they lie in memory. The three calls
/// are made in turn, once an iteration; between them p, then q, become the means over the ranks.
///
/// What pᵀ q leaves out is taken off M when the next gradient is added to it: each pass over M
/// costs as much as memory takes. In host memory each result depends on its inputs alone and is
/// summed in one order, so it is the same on all ranks, whatever their numbers of threads.
class LowRank {
 public:
  /// What travels of a parameter: p [rank, rows] and q [rank, columns], or its values and nothing.
  struct Sizes {
    std::array<std::int64_t, 2> p, q;
  };
  static Sizes sizes_of(const torch::Tensor& parameter, std::int64_t rank_at_most);

  /// The parameter's gradient is worked on where it lies. `p` and `q` are memory of the caller's of
  /// these sizes: 0, and what `draw_normal` makes of `key`.
  LowRank(const torch::Tensor& parameter, torch::Tensor p, torch::Tensor q, std::uint64_t key);

  bool whole() const { return q_.numel() == 0; }

  /// M = what the last `decode` left out + gradient; p = M q, with q made orthonormal.
  void encode();
  /// q = Mᵀ p, with p made orthonormal.
  void project();
  /// gradient = pᵀ q.
  void decode();

  /// What the last `decode` left out, [rows, columns], to be read and written between `decode` and
  /// `encode`; reading it changes no bit of what follows. And q. Require that it is not whole.
  torch::Tensor error();
  torch::Tensor factor() const { return q_; }

 private:
  struct Host;
  Host on_host() const;

  torch::Tensor gradient_;  ///< [rows, columns], or the sizes of p
  torch::Tensor matrix_, p_, q_;
  torch::Tensor q_before_;  ///< q of the last `decode`, while the next one is computed
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
