#include "optim/optimizer.h"

#include <algorithm>

#include "support/error.h"

namespace gradsync {

Optimizer::Optimizer(Replica& replica, std::vector<std::string> moment_names)
    : replica_(replica), moment_names_(std::move(moment_names)), moments_(moment_names_.size()) {
  for (auto& moment : moments_)
    for (const auto& parameter : replica.parameters)
      moment.emplace_back(static_cast<std::size_t>(parameter.numel()), 0.0f);
}

torch::Tensor Optimizer::moment(std::size_t which, std::size_t parameter) {
  const torch::Tensor& like = replica_.parameters[parameter];
  return torch::from_blob(moments_[which][parameter].data(), like.sizes(), like.strides(),
                          torch::kFloat32);
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  const StepFactors factors{static_cast<float>(learning_rate), static_cast<float>(gradient_scale)};
  ++steps_;
  for (std::size_t i = 0; i < replica_.parameters.size(); ++i) {
    const torch::Tensor& parameter = replica_.parameters[i];
    const torch::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || gradient.strides() != parameter.strides())
      throw Error(ExitCode::kInternal,
                  "gradient of " + replica_.names[i] + " is missing or laid out otherwise");
    update({i, parameter.data_ptr<float>(), gradient.data_ptr<float>(), parameter.numel(),
            parameter.dim() <= 1},
           factors);
  }
}

const std::vector<OptimizerEntry>& optimizers() {
  static const std::vector<OptimizerEntry> all = {
      {"sgd", make_sgd}, {"lars", make_lars}, {"lamb", make_lamb}, {"adam", make_adam}};
  return all;
}

std::unique_ptr<Optimizer> make_optimizer(Replica& replica, const OptimizerSettings& settings) {
  const auto& all = optimizers();
  const auto entry = std::find_if(all.begin(), all.end(), [&](const OptimizerEntry& candidate) {
    return candidate.name == settings.name;
  });
  if (entry == all.end())
    throw Error(ExitCode::kUsage, "optimizer " + settings.name + " is unknown");
  return entry->make(replica, settings);
}

}  // namespace gradsync
