#include <algorithm>
#include <cstddef>
#include <cstring>

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
  if (replica.parameters.at(0).is_cuda() && settings.scales_loss && settings.name != "sgd")
    throw Error(ExitCode::kUsage, "optimizer " + settings.name + " has no loss scale on a GPU",
                "--precision bf16, or --optimizer sgd");
  auto optimizer = entry->make(replica, settings);
  if (settings.scales_loss) optimizer->begin_loss_scaling();
  return optimizer;
}

}  // namespace gradsync
