#include "optim/adam_moments.h"
#include "optim/tensor_optimizer.h"

namespace gradsync {

namespace {

/// Adam as adam.cpp has it.
class AdamOnTensors : public TensorOptimizer {
 public:
  AdamOnTensors(Replica& replica, const OptimizerSettings& settings)
      : TensorOptimizer(replica, adam_moment_names()), settings_(settings) {}

 protected:
  void update(Group& group) override {
    at::_foreach_add_(group.gradients, group.parameters, settings_.weight_decay);
    auto steps = adam_directions(group.gradients, group.moments, settings_, step_number());
    at::_foreach_mul_(steps, learning_rate());
    at::_foreach_sub_(group.parameters, steps);
  }

 private:
  OptimizerSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam_on_tensors(Replica& replica,
                                                const OptimizerSettings& settings) {
  return std::make_unique<AdamOnTensors>(replica, settings);
}

}  // namespace gradsync
