#pragma once

#include "model/replica.h"

namespace gradsync {

/// Euclidean norm of all gradients together. After the exchange of a mode that averages, every rank
/// has the same gradients, so this is the norm of the global batch's gradient.
double gradient_norm(const Replica& replica);

/// What gradients of this norm are to be multiplied by, so that it is at most `largest` (the rule
/// of torch.nn.utils.clip_grad_norm_: largest / (norm + 1e-6), at most 1). 0 for `largest`: no
/// limit.
double clip_factor(double norm, double largest);

}  // namespace gradsync
