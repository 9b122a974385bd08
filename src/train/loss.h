#pragma once

#include <torch/types.h>

#include "sync/sync_mode.h"

namespace gradsync {

/// The loss of one pass on the rank that computes it.
struct PassLoss {
  torch::Tensor loss;  ///< scalar to run backward from: mean cross-entropy / parts
  /// Σ loss and number of right answers over each rank's samples, float64 [ranks, 2], where the
  /// logits are: reading them there would make the host wait for a device.
  torch::Tensor sums;
};

/// Cross-entropy in float32 of logits [ranks × samples, classes], the ranks' samples one after the
/// other. Of tokens, logits [ranks × samples, tokens, classes]: the loss of a sample is the mean of
/// its tokens', and its answer is right if the last token's is. It is averaged over all samples and
/// divided by `parts`: how many times as many samples the iteration has as this pass (gradient
/// accumulation), so that every sample weighs the same. With `label_smoothing` that share of the
/// target lies on all classes alike (Szegedy et al., 2016).
PassLoss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, int ranks,
                       double parts, double label_smoothing = 0);

}  // namespace gradsync
