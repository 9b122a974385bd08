#include "train/sgd.h"

#include <ATen/Parallel.h>

#include "support/error.h"

namespace gradsync {

namespace {

/// Values a thread takes at a time: smaller than this is not worth a second thread.
constexpr std::int64_t kGrain = 32768;

struct StepFactors {
  float learning_rate, momentum, weight_decay;
};

void update(float* parameter, float* gradient, float* velocity, std::int64_t begin,
            std::int64_t end, const StepFactors factors) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = gradient[i] + factors.weight_decay * parameter[i];
    const float v = factors.momentum * velocity[i] + g;
    velocity[i] = v;
    parameter[i] -= factors.learning_rate * v;
    gradient[i] = 0;
  }
}

}  // namespace

Sgd::Sgd(Replica& replica, double momentum, double weight_decay)
    : replica_(replica),
      momentum_(static_cast<float>(momentum)),
      weight_decay_(static_cast<float>(weight_decay)) {
  for (const auto& parameter : replica.parameters)
    velocity_.emplace_back(static_cast<std::size_t>(parameter.numel()), 0.0f);
}

void Sgd::step(double learning_rate) {
  const StepFactors factors{static_cast<float>(learning_rate), momentum_, weight_decay_};
  for (std::size_t i = 0; i < replica_.parameters.size(); ++i) {
    const torch::Tensor& parameter = replica_.parameters[i];
    const torch::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || gradient.strides() != parameter.strides())
      throw Error(ExitCode::kInternal,
                  "gradient of " + replica_.names[i] + " is missing or laid out otherwise");
    float* p = parameter.data_ptr<float>();
    float* g = gradient.data_ptr<float>();
    float* v = velocity_[i].data();
    at::parallel_for(0, parameter.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      update(p, g, v, begin, end, factors);
    });
  }
}

torch::Tensor Sgd::momentum(std::size_t parameter) {
  const torch::Tensor& like = replica_.parameters[parameter];
  return torch::from_blob(velocity_[parameter].data(), like.sizes(), like.strides(),
                          torch::kFloat32);
}

}  // namespace gradsync
