// SPDX-License-Identifier: BSD-3-Clause
#include "optim/optimizer.h"

namespace gradsync {

namespace {

/// LARS on lists of tensors.
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

namespace {

struct LarsFactors {
  float rate, scale, momentum, weight_decay;
};

void update_range(float* parameter, float* gradient, float* velocity, std::int64_t begin,
                  std::int64_t end, const LarsFactors factors) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = factors.scale * gradient[i] + factors.weight_decay * parameter[i];
    velocity[i] = factors.momentum * velocity[i] + factors.rate * g;
    parameter[i] -= velocity[i];
    gradient[i] = 0;
  }
}

/// Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017, algorithm 1), with trust
/// coefficient η, weight decay β, momentum m and learning rate γ, per layer:
///   λ = η·‖w‖ / (‖g‖ + β·‖w‖); v = m·v + γ·λ·(g + β·w); w −= v.
/// Biases and normalization parameters are exempt: λ = 1 and β = 0; so is λ where a norm is 0.
class Lars : public Optimizer {
 public:
  Lars(Replica& replica, const OptimizerSettings& settings)
      : Optimizer(replica, {"velocity"}),
        momentum_(static_cast<float>(settings.momentum)),
        weight_decay_(settings.weight_decay),
        trust_coefficient_(settings.trust_coefficient) {}

 protected:
  void update(const Values& values, const StepFactors& factors) override {
    const double decay = values.exempt ? 0 : weight_decay_;
    const auto local = static_cast<float>(local_rate(values, factors.gradient_scale));
    const LarsFactors all{factors.learning_rate * local, factors.gradient_scale, momentum_,
                          static_cast<float>(decay)};
    float* velocity = moment_values(0, values);
    in_chunks(values.count, [&](std::int64_t begin, std::int64_t end) {
      update_range(values.parameter, values.gradient, velocity, begin, end, all);
    });
  }

 private:
  double local_rate(const Values& values, double gradient_scale) const {
    if (values.exempt) return 1;
    const double weight = norm(values.parameter, values.count);
    const double gradient = gradient_scale * norm(values.gradient, values.count);
    if (weight == 0 || gradient == 0) return 1;
    return trust_coefficient_ * weight / (gradient + weight_decay_ * weight);
  }

  float momentum_;
  double weight_decay_, trust_coefficient_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(Replica& replica, const OptimizerSettings& settings) {
  if (replica.parameters.at(0).is_cuda()) return make_lars_on_tensors(replica, settings);
  return std::make_unique<Lars>(replica, settings);
}

}  // namespace gradsync
