#include "optim/adam_moments.h"
#include "optim/tensor_optimizer.h"

namespace gradsync {

namespace {

/// LAMB as lamb.cpp has it.
class LambOnTensors : public TensorOptimizer {
 public:
  LambOnTensors(Replica& replica, const OptimizerSettings& settings)
      : TensorOptimizer(replica, adam_moment_names()), settings_(settings) {}

 protected:
  void update(Group& group) override {
    auto steps = adam_directions(group.gradients, group.moments, settings_, step_number());
    if (group.exempt) {
      at::_foreach_mul_(steps, learning_rate());
    } else {
      at::_foreach_add_(steps, group.parameters, settings_.weight_decay);
      const torch::Tensor weights = norms_of(group.parameters), directions = norms_of(steps);
      scale_each(steps, learning_rate() * ratio_or_one(weights / directions, weights, directions));
    }
    at::_foreach_sub_(group.parameters, steps);
  }

 private:
  OptimizerSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb_on_tensors(Replica& replica,
                                                const OptimizerSettings& settings) {
  return std::make_unique<LambOnTensors>(replica, settings);
}

}  // namespace gradsync
