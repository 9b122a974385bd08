#pragma once

#include <torch/types.h>

#include "model/replica.h"

namespace gradsync {

/// Euclidean norm of all gradients together, which lie in host memory. After the exchange of a mode
/// that averages, every rank has the same gradients, so this is the norm of the global batch's
/// gradient.
double gradient_norm(const Replica& replica);

/// What gradients of this norm are to be multiplied by, so that it is at most `largest` (the rule
/// of torch.nn.utils.clip_grad_norm_: largest / (norm + 1e-6), at most 1). 0 for `largest`: no
/// limit.
double clip_factor(double norm, double largest);

/// The factor for gradients on a device, from their norm over `loss_scale` (of no dimension, on the
/// device as well): float32 of no dimension, computed there in double. The host does not wait.
torch::Tensor clip_factor_on_device(const Replica& replica, double largest,
                                    const torch::Tensor& loss_scale);

}  // namespace gradsync
