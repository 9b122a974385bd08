// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "machine/kernel_math.h"
#include "optim/optimizer.h"

namespace gradsync {

Optimizer::Optimizer(Replica& replica, std::vector<std::string> moment_names)
    : replica_(replica), moment_names_(std::move(moment_names)), moments_(moment_names_.size()) {
  const auto on_device = torch::device(replica.parameters.at(0).device());
  for (auto& moment : moments_)
    for (const auto& parameter : replica.parameters)
      moment.push_back(torch::zeros({parameter.numel()}, on_device));
  state_ = torch::empty({sizeof(StepState)}, on_device.dtype(torch::kUInt8));
  write_state(StepState());
}

torch::Tensor Optimizer::moment(std::size_t which, std::size_t parameter) {
  const torch::Tensor& like = replica_.parameters[parameter];
  return moments_[which][parameter].as_strided(like.sizes(), like.strides());
}

Optimizer::Values Optimizer::values_of(std::size_t i) const {
  const torch::Tensor& parameter = replica_.parameters[i];
  const torch::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.strides() != parameter.strides())
    throw Error(ExitCode::kInternal,
                "gradient of " + replica_.names[i] + " is missing or laid out otherwise");
  return {i, parameter.data_ptr<float>(), gradient.data_ptr<float>(), parameter.numel(),
          parameter.dim() <= 1};
}

void Optimizer::prepare(double learning_rate, double gradient_scale) {
  state()->learning_rate = static_cast<float>(learning_rate);
  state()->clip_factor = static_cast<float>(gradient_scale);
}

void Optimizer::apply() {
  StepState& now = *state();
  if (scales_loss_) find_bad_gradients();
  const bool skipped = skips_step(now);
  const StepFactors factors{now.learning_rate, gradient_factor(now)};
  if (!skipped) ++steps_;
  for (std::size_t i = 0; i < parameter_count(); ++i) {
    const Values values = values_of(i);
    if (skipped)
      std::fill_n(values.gradient, values.count, 0.0f);
    else
      update(values, factors);
  }
  finish_step(now);
}

void Optimizer::begin_step(double learning_rate) {
  if (scales_loss_) throw Error(ExitCode::kInternal, "a step in parts, with a loss scale");
  prepare(learning_rate, /*gradient_scale=*/1);
  ++steps_;
}

void Optimizer::step_parameter(std::size_t i) {
  update(values_of(i), {state()->learning_rate, gradient_factor(*state())});
}

void Optimizer::find_bad_gradients() const {
  for (std::size_t i = 0; i < parameter_count(); ++i) {
    const Values values = values_of(i);
    if (std::any_of(values.gradient, values.gradient + values.count, is_bad)) {
      state()->first_bad = i;
      return;
    }
  }
}

void Optimizer::begin_loss_scaling() {
  scales_loss_ = true;
  StepState begun = read_state();
  begun.scales = true;
  begun.loss_scale = {LossScale::kStart, 0};
  write_state(begun);
}

torch::Tensor Optimizer::field(std::size_t offset) const {
  return state_.narrow(0, static_cast<std::int64_t>(offset), sizeof(float))
      .view(torch::kFloat32)
      .squeeze(0);
}

torch::Tensor Optimizer::loss_scale() const {
  return field(offsetof(StepState, loss_scale.scale));
}

torch::Tensor Optimizer::learning_rate_view() const {
  return field(offsetof(StepState, learning_rate));
}

torch::Tensor Optimizer::clip_factor_view() const {
  return field(offsetof(StepState, clip_factor));
}

void Optimizer::scale_gradients(const torch::Tensor& gradient_scale) {
  clip_factor_view().copy_(gradient_scale);
}

StepState Optimizer::read_state() const {
  StepState copy;
  std::memcpy(&copy, state_.cpu().data_ptr(), sizeof(copy));
  return copy;
}

void Optimizer::write_state(const StepState& state) {
  torch::Tensor bytes = torch::empty({sizeof(state)}, torch::kUInt8);
  std::memcpy(bytes.data_ptr(), &state, sizeof(state));
  state_.copy_(bytes);
}

const std::vector<OptimizerEntry>& optimizers() {
  static const std::vector<OptimizerEntry> all = {
#define GRADSYNC_OPTIMIZER(name) {#name, make_##name},
#include "options/optimizers.def"
#undef GRADSYNC_OPTIMIZER
  };
  return all;
}

std::unique_ptr<Optimizer> make_optimizer(Replica& replica, const OptimizerSettings& settings) {
  const auto& all = optimizers();
  const auto entry = std::find_if(all.begin(), all.end(), [&](const OptimizerEntry& candidate) {
    return candidate.name == settings.name;
  });
  if (entry == all.end())
    throw Error(ExitCode::kUsage, "optimizer " + settings.name + " is unknown");
  auto optimizer = entry->make(replica, settings);
  if (settings.scales_loss) optimizer->begin_loss_scaling();
  return optimizer;
}

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

namespace {

double sum_of_range(const float* values, std::int64_t begin, std::int64_t end) {
  double sum = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

double sum_of_squares(const float* values, std::int64_t count) {
  if (count <= kGrain) return sum_of_range(values, 0, count);
  std::vector<double> sums(static_cast<std::size_t>((count + kGrain - 1) / kGrain));
  at::parallel_for(
      0, static_cast<std::int64_t>(sums.size()), 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t range = first; range < last; ++range)
          sums[static_cast<std::size_t>(range)] =
              sum_of_range(values, range * kGrain, std::min(count, (range + 1) * kGrain));
      });
  double sum = 0;
  for (const double part : sums)
    sum += part;
  return sum;
}

double norm(const float* values, std::int64_t count) {
  return std::sqrt(sum_of_squares(values, count));
}

}  // namespace gradsync
