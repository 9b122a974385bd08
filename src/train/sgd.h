#pragma once

#include <vector>

#include <torch/torch.h>

#include "model/replica.h"

namespace gradsync {

/// Stochastic gradient descent with momentum and weight decay, as torch.optim.SGD computes it
/// (dampening 0, no Nesterov): g += weight_decay·p; v = momentum·v + g; p −= lr·v.
///
/// One pass over memory a step: parameter, gradient and momentum are read and written together, and
/// the gradient is left zeroed, so there is no zeroing pass.
class Sgd {
 public:
  Sgd(Replica& replica, double momentum, double weight_decay);

  /// Requires a gradient with its parameter's strides in every parameter.
  void step(double learning_rate);

  /// The momentum of one parameter, in its shape and strides: a view, valid while this lives.
  torch::Tensor momentum(std::size_t parameter);

 private:
  Replica& replica_;
  float momentum_, weight_decay_;
  std::vector<std::vector<float>> velocity_;
};

}  // namespace gradsync
