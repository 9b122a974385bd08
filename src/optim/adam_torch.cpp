// SPDX-License-Identifier: BSD-3-Clause
#include "optim/adam_moments.h"
#include "optim/optimizer.h"

namespace gradsync {

namespace {

/// Adam on lists of tensors.
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

namespace {

/// Adam (Kingma and Ba, 2015, algorithm 1) with weight decay added to the gradient, as
/// torch.optim.Adam computes it.
class Adam : public Optimizer {
 public:
  Adam(Replica& replica, const OptimizerSettings& settings)
      : Optimizer(replica, adam_moment_names()), settings_(settings) {}

 protected:
  void update(const Values& values, const StepFactors& factors) override {
    const AdamFactors adam = adam_factors(settings_, steps(), factors.gradient_scale);
    const auto decay = static_cast<float>(settings_.weight_decay);
    float *first = moment_values(0, values), *second = moment_values(1, values);
    in_chunks(values.count, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const float g = adam.scale * values.gradient[i] + decay * values.parameter[i];
        values.parameter[i] -= factors.learning_rate * adam_direction(g, first[i], second[i], adam);
        values.gradient[i] = 0;
      }
    });
  }

 private:
  OptimizerSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(Replica& replica, const OptimizerSettings& settings) {
  if (replica.parameters.at(0).is_cuda()) return make_adam_on_tensors(replica, settings);
  return std::make_unique<Adam>(replica, settings);
}

}  // namespace gradsync
