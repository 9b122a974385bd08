#include "optim/tensor_optimizer.h"

namespace gradsync {

namespace {

/// LARS as lars.cpp has it.
class LarsOnTensors : public TensorOptimizer {
 public:
  LarsOnTensors(Replica& replica, const OptimizerSettings& settings)
      : TensorOptimizer(replica, {"velocity"}), settings_(settings) {}

 protected:
  void update(Group& group) override {
    if (group.exempt)
      at::_foreach_mul_(group.gradients, learning_rate());
    else
      take_local_rates(group);
    at::_foreach_mul_(group.moments[0], settings_.momentum);
    at::_foreach_add_(group.moments[0], group.gradients);
    at::_foreach_sub_(group.parameters, group.moments[0]);
  }

 private:
  void take_local_rates(Group& group) const {
    const torch::Tensor weights = norms_of(group.parameters), gradients = norms_of(group.gradients);
    const torch::Tensor local =
        settings_.trust_coefficient * weights / (gradients + settings_.weight_decay * weights);
    at::_foreach_add_(group.gradients, group.parameters, settings_.weight_decay);
    scale_each(group.gradients, learning_rate() * ratio_or_one(local, weights, gradients));
  }

  OptimizerSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars_on_tensors(Replica& replica,
                                                const OptimizerSettings& settings) {
  return std::make_unique<LarsOnTensors>(replica, settings);
}

}  // namespace gradsync
