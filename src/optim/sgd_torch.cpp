// SPDX-License-Identifier: BSD-3-Clause
#include "machine/kernel_math.h"
#include "optim/optimizer.h"

namespace gradsync {

namespace {

template <bool kNesterov>
void update_range(float* parameter, float* gradient, float* velocity, std::int64_t begin,
                  std::int64_t end, const SgdFactors factors) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i)
    sgd_update<kNesterov>(parameter[i], gradient[i], velocity[i], factors);
}

/// Stochastic gradient descent with momentum and weight decay, as torch.optim.SGD computes it
/// (dampening 0): g += weight_decay·p; v = momentum·v + g; p −= lr·v, with Nesterov's momentum
/// p −= lr·(g + momentum·v).
class Sgd : public Optimizer {
 public:
  Sgd(Replica& replica, const OptimizerSettings& settings)
      : Optimizer(replica, {"velocity"}),
        momentum_(static_cast<float>(settings.momentum)),
        weight_decay_(static_cast<float>(settings.weight_decay)),
        nesterov_(settings.nesterov) {}

 protected:
  void update(const Values& values, const StepFactors& factors) override {
    const auto range = nesterov_ ? update_range<true> : update_range<false>;
    const SgdFactors all{factors.learning_rate, factors.gradient_scale, momentum_, weight_decay_};
    float* velocity = moment_values(0, values);
    in_chunks(values.count, [&](std::int64_t begin, std::int64_t end) {
      range(values.parameter, values.gradient, velocity, begin, end, all);
    });
  }

 private:
  float momentum_, weight_decay_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(Replica& replica, const OptimizerSettings& settings) {
  if (replica.parameters.at(0).is_cuda()) return std::make_unique<FusedSgd>(replica, settings);
  return std::make_unique<Sgd>(replica, settings);
}

}  // namespace gradsync
