#pragma once

#include "base/host_device.h"

namespace gradsync {

struct SgdFactors {
  float learning_rate, gradient_scale, momentum, weight_decay;
};

/// One value's step of SGD as torch.optim.SGD computes it (dampening 0), with the gradient taken
/// times `gradient_scale`; leaves the gradient zeroed, so there is no zeroing pass.
template <bool kNesterov>
GRADSYNC_HOST_DEVICE inline void sgd_update(float& parameter, float& gradient, float& velocity,
                                            const SgdFactors& factors) {
  const float g = factors.gradient_scale * gradient + factors.weight_decay * parameter;
  const float v = factors.momentum * velocity + g;
  velocity = v;
  parameter -= factors.learning_rate * (kNesterov ? g + factors.momentum * v : v);
  gradient = 0;
}

}  // namespace gradsync
