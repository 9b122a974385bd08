// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <span>

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

namespace gradsync {

/// The ranks that share statistics.
struct RanksOfNorm {
  /// Averages values over the ranks, in place, equal on all of them. Collective.
  std::function<void(std::span<float>)> mean;
  int count = 1;
};

/// Batch norm whose statistics are those of this rank's images, as LibTorch's, or those of all
/// ranks' images together ("SyncBN"), so that n ranks compute what one rank does on their whole
/// batch. Parameters, buffers and names are torch::nn::BatchNorm2d's.
class BatchNormImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  /// `images` [N, C, H, W], N equal on all ranks.
  torch::Tensor forward(const torch::Tensor& images);

  /// Makes training exchange 2C values in each forward and in each backward pass.
  void share_statistics(RanksOfNorm ranks) { ranks_ = std::move(ranks); }

 private:
  RanksOfNorm ranks_;
};

TORCH_MODULE(BatchNorm);

/// Calls share_statistics on every batch norm in `network`.
void share_statistics(torch::nn::Module& network, const RanksOfNorm& ranks);

}  // namespace gradsync
