// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "optim/optimizer.h"

namespace gradsync {

namespace {

/// Added to the norm, so that a norm of 0 is not divided by.
constexpr double kGuard = 1e-6;

}  // namespace

double gradient_norm(const Replica& replica) {
  double sum = 0;
  for (const auto& parameter : replica.parameters)
    sum += sum_of_squares(parameter.grad().data_ptr<float>(), parameter.numel());
  return std::sqrt(sum);
}

double clip_factor(double norm, double largest) {
  return largest > 0 ? std::min(1.0, largest / (norm + kGuard)) : 1;
}

torch::Tensor gradient_norm_on_device(const Replica& replica) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : replica.parameters)
    gradients.push_back(parameter.grad());
  return torch::stack(at::_foreach_norm(gradients, 2, torch::kFloat64)).norm();
}

torch::Tensor clip_factor_on_device(const torch::Tensor& norm, double largest,
                                    const torch::Tensor& loss_scale) {
  return (largest / (norm / loss_scale.to(torch::kFloat64) + kGuard))
      .clamp_max(1)
      .to(torch::kFloat32);
}

}  // namespace gradsync
