#include "sync/gradient_hooks.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

namespace gradsync {

namespace autograd = torch::autograd;

GradientHooks::GradientHooks(const std::vector<torch::Tensor>& parameters,
                             std::function<void(std::size_t)> ready) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    auto accumulator = autograd::impl::grad_accumulator(parameters[index]);
    auto hook = [index, ready](const autograd::variable_list& outputs,
                               const autograd::variable_list&) {
      ready(index);
      return outputs;
    };
    keys_.push_back(accumulator->add_post_hook(std::make_unique<autograd::utils::LambdaPostHook>(
        std::move(hook), [](autograd::CompiledNodeArgs&) {})));
    accumulators_.push_back(std::move(accumulator));
  }
}

GradientHooks::~GradientHooks() {
  for (std::size_t index = 0; index < keys_.size(); ++index)
    accumulators_[index]->del_post_hook(keys_[index]);
}

}  // namespace gradsync
