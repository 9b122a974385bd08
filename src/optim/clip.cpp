#include "optim/clip.h"

#include <algorithm>
#include <cmath>

#include "optim/chunks.h"

namespace gradsync {

namespace {

/// The host waits for the device here: what follows is decided by the norm.
double norm_on_device(const Replica& replica) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : replica.parameters)
    gradients.push_back(parameter.grad().detach());
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& one : at::_foreach_norm(gradients))
    norms.push_back(one.to(torch::kFloat64));
  return torch::stack(norms).norm().item<double>();
}

}  // namespace

double gradient_norm(const Replica& replica) {
  if (!replica.parameters.empty() && !replica.parameters[0].is_cpu())
    return norm_on_device(replica);
  double sum = 0;
  for (const auto& parameter : replica.parameters)
    sum += sum_of_squares(parameter.grad().data_ptr<float>(), parameter.numel());
  return std::sqrt(sum);
}

double clip_factor(double norm, double largest) {
  constexpr double kGuard = 1e-6;
  return largest > 0 ? std::min(1.0, largest / (norm + kGuard)) : 1;
}

}  // namespace gradsync
