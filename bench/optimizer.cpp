// One optimiser step of each network: ours (one pass over memory, gradients zeroed in it) against
// torch::optim::SGD with zero_grad. One thread, interleaved; medians, spread and their ratio.

#include "optim/optimizer.h"

#include <chrono>
#include <iostream>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include "model/replica.h"
#include "support/error.h"
#include "timing/estimate.h"

namespace {

using namespace gradsync;

constexpr int kRounds = 60, kWarmup = 5;
constexpr double kLearningRate = 1e-4, kMomentum = 0.9, kWeightDecay = 5e-4;

template <typename Work>
double milliseconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Replica with_gradients(const std::string& model) {
  Replica replica = make_replica(model, 1, Layout::kNchw);
  for (torch::Tensor& parameter : replica.parameters)
    parameter.mutable_grad() = torch::randn_like(parameter);
  return replica;
}

void compare(const std::string& model) {
  Replica ours = with_gradients(model), theirs = with_gradients(model);
  OptimizerSettings settings;
  settings.momentum = kMomentum;
  settings.weight_decay = kWeightDecay;
  const auto fused = make_optimizer(ours, settings);
  torch::optim::SGD reference(
      theirs.parameters,
      torch::optim::SGDOptions(kLearningRate).momentum(kMomentum).weight_decay(kWeightDecay));
  std::vector<double> fused_ms, reference_ms;
  for (int round = -kWarmup; round < kRounds; ++round) {
    const double one = milliseconds([&] { fused->step(kLearningRate); });
    const double other = milliseconds([&] {
      reference.step();
      reference.zero_grad(/*set_to_none=*/false);
    });
    if (round < 0) continue;
    fused_ms.push_back(one);
    reference_ms.push_back(other);
  }
  const Estimate a = median_estimate(fused_ms), b = median_estimate(reference_ms);
  const Estimate ratio = ratio_estimate(reference_ms, fused_ms, 1);
  std::cout << fmt::format(
      "{:<10}{:>9.3f} [{:.3f}, {:.3f}]{:>9.3f} [{:.3f}, {:.3f}]{:>7.2f} [{:.2f}, {:.2f}]\n", model,
      a.value, a.low, a.high, b.value, b.low, b.high, ratio.value, ratio.low, ratio.high);
}

}  // namespace

int main() {
  return run_program("bench/optimizer", [] {
    at::set_num_threads(1);
    std::cout << fmt::format("optimiser step in ms, median of {} and its 95 % interval, 1 thread\n",
                             kRounds)
              << "model         gradsync's SGD           torch::optim::SGD        ratio\n";
    for (const char* model : {"lenet", "resnet18", "vgg11"})
      compare(model);
    return 0;
  });
}
