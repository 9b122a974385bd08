#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

namespace gradsync {

/// Calls `ready(parameter index)` each time a backward pass has accumulated a parameter's gradient,
/// in the order and on the thread in which autograd does so. What torch's own DDP hooks into.
class GradientHooks {
 public:
  GradientHooks(const std::vector<torch::Tensor>& parameters,
                std::function<void(std::size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  // Autograd keeps only a weak reference to a parameter's accumulator: without these it, and the
  // hook with it, would be gone before the first backward pass.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<std::uintptr_t> keys_;
};

}  // namespace gradsync
