#include <utility>

#include "optim/tensor_optimizer.h"

namespace gradsync {

TensorOptimizer::TensorOptimizer(Replica& replica, std::vector<std::string> moment_names)
    : Optimizer(replica, std::move(moment_names)),
      replica_(replica),
      step_number_(torch::zeros({}, torch::TensorOptions(device()).dtype(torch::kFloat64))) {
  for (const bool exempt : {false, true}) {
    Group group{exempt, {}, {}, std::vector<Tensors>(this->moment_names().size())};
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      if ((replica.parameters[i].dim() <= 1) != exempt) continue;
      places.push_back(i);
      group.parameters.push_back(replica.parameters[i]);
      for (std::size_t which = 0; which < group.moments.size(); ++which)
        group.moments[which].push_back(moment(which, i));
    }
    if (places.empty()) continue;
    groups_.push_back(std::move(group));
    places_.push_back(std::move(places));
  }
}

// The step's number is that of a step that is about to come; a replayed one is not counted here.
void TensorOptimizer::prepare(double learning_rate, double gradient_scale) {
  learning_rate_view().fill_(learning_rate);
  clip_factor_view().fill_(gradient_scale);
  step_number_.fill_(static_cast<double>(steps() + 1));
}

void TensorOptimizer::apply() {
  const torch::NoGradGuard no_grad;
  find_gradients();
  ++steps();
  for (Group& group : groups_) {
    at::_foreach_mul_(group.gradients, clip_factor_view());
    update(group);
    at::_foreach_zero_(group.gradients);
  }
}

/// They may lie elsewhere than before.
void TensorOptimizer::find_gradients() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].gradients.clear();
    for (const std::size_t i : places_[g]) {
      values_of(i);  // refuses a gradient that is laid out otherwise
      groups_[g].gradients.push_back(replica_.parameters[i].grad());
    }
  }
}

torch::Tensor norms_of(const std::vector<torch::Tensor>& values) {
  return torch::stack(at::_foreach_norm(values, 2, torch::kFloat64));
}

void scale_each(const std::vector<torch::Tensor>& values, const torch::Tensor& factors) {
  at::_foreach_mul_(values, factors.to(torch::kFloat32).unbind());
}

torch::Tensor ratio_or_one(const torch::Tensor& ratio, const torch::Tensor& norm,
                           const torch::Tensor& other) {
  return torch::where((norm > 0).logical_and(other > 0), ratio, torch::ones_like(ratio));
}

std::vector<torch::Tensor> adam_directions(const std::vector<torch::Tensor>& gradients,
                                           const std::vector<std::vector<torch::Tensor>>& moments,
                                           const OptimizerSettings& settings,
                                           const torch::Tensor& step_number) {
  const auto& first = moments[0];
  const auto& second = moments[1];
  at::_foreach_mul_(first, settings.beta1);
  at::_foreach_add_(first, gradients, 1 - settings.beta1);
  at::_foreach_mul_(second, settings.beta2);
  at::_foreach_addcmul_(second, gradients, gradients, 1 - settings.beta2);
  const torch::Tensor first_correction = 1 / (1 - at::pow(settings.beta1, step_number));
  const torch::Tensor second_correction = 1 / (1 - at::pow(settings.beta2, step_number)).sqrt();
  auto denominators = at::_foreach_sqrt(second);
  at::_foreach_mul_(denominators, second_correction.to(torch::kFloat32));
  at::_foreach_add_(denominators, settings.epsilon);
  auto directions = at::_foreach_div(first, denominators);
  at::_foreach_mul_(directions, first_correction.to(torch::kFloat32));
  return directions;
}

}  // namespace gradsync
