// SPDX-License-Identifier: BSD-3-Clause
#include "optim/adam_moments.h"
#include "optim/optimizer.h"

namespace gradsync {

namespace {

/// LAMB on lists of tensors.
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

namespace {

/// LAMB (You et al., 2020, algorithm 2, φ(z) = z) with weight decay λ, per layer:
///   r = m̂ / (√v̂ + ε); u = r + λ·w; w −= lr·(‖w‖ / ‖u‖)·u.
/// Biases and normalization parameters are exempt: ratio 1 and λ = 0; so is the ratio where a norm
/// is 0. The direction u is left in the gradient between its two passes.
class Lamb : public Optimizer {
 public:
  Lamb(Replica& replica, const OptimizerSettings& settings)
      : Optimizer(replica, adam_moment_names()), settings_(settings) {}

 protected:
  void update(const Values& values, const StepFactors& factors) override {
    find_direction(values, factors);
    const float rate = factors.learning_rate * trust_ratio(values);
    in_chunks(values.count, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        values.parameter[i] -= rate * values.gradient[i];
        values.gradient[i] = 0;
      }
    });
  }

 private:
  void find_direction(const Values& values, const StepFactors& factors) {
    const AdamFactors adam = adam_factors(settings_, steps(), factors.gradient_scale);
    const auto decay = static_cast<float>(values.exempt ? 0 : settings_.weight_decay);
    float *first = moment_values(0, values), *second = moment_values(1, values);
    in_chunks(values.count, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i)
        values.gradient[i] =
            adam_direction(adam.scale * values.gradient[i], first[i], second[i], adam) +
            decay * values.parameter[i];
    });
  }

  static float trust_ratio(const Values& values) {
    if (values.exempt) return 1;
    const double weight = norm(values.parameter, values.count);
    const double direction = norm(values.gradient, values.count);
    return weight == 0 || direction == 0 ? 1 : static_cast<float>(weight / direction);
  }

  OptimizerSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(Replica& replica, const OptimizerSettings& settings) {
  if (replica.parameters.at(0).is_cuda()) return make_lamb_on_tensors(replica, settings);
  return std::make_unique<Lamb>(replica, settings);
}

}  // namespace gradsync
