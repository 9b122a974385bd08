// SPDX-License-Identifier: BSD-3-Clause
// One optimizer step of each network: ours (one pass over memory, gradients zeroed in it) against
// torch::optim::SGD and ATen's fused update, both with gradients zeroed. One thread, interleaved;
// medians, spread and ratios.

#include "optim/optimizer.h"

#include <chrono>
#include <iostream>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "base/error.h"
#include "model/replica.h"
#include "stats/estimate.h"

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

/// ATen's fused update of all tensors, and the zeroing that ours does in passing.
class FusedAten {
 public:
  explicit FusedAten(Replica& replica) : parameters_(replica.parameters) {
    for (const torch::Tensor& parameter : parameters_) {
      gradients_.push_back(parameter.grad());
      velocities_.push_back(torch::zeros_like(parameter));
    }
  }

  void step() {
    const torch::NoGradGuard no_grad;
    at::_fused_sgd_(parameters_, gradients_, velocities_, kWeightDecay, kMomentum, kLearningRate,
                    /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
    for (torch::Tensor& gradient : gradients_)
      gradient.zero_();
  }

 private:
  std::vector<torch::Tensor> parameters_, gradients_, velocities_;
};

struct Times {
  std::vector<double> ours_ms, optim_ms, fused_ms;
};

Times interleaved(const std::string& model) {
  Replica ours = with_gradients(model), theirs = with_gradients(model),
          others = with_gradients(model);
  OptimizerSettings settings;
  settings.momentum = kMomentum;
  settings.weight_decay = kWeightDecay;
  const auto own = make_optimizer(ours, settings);
  torch::optim::SGD optim(
      theirs.parameters,
      torch::optim::SGDOptions(kLearningRate).momentum(kMomentum).weight_decay(kWeightDecay));
  FusedAten fused(others);
  Times times;
  for (int round = -kWarmup; round < kRounds; ++round) {
    const double own_ms = milliseconds([&] { own->step(kLearningRate); });
    const double optim_ms = milliseconds([&] {
      optim.step();
      optim.zero_grad(/*set_to_none=*/false);
    });
    const double fused_ms = milliseconds([&] { fused.step(); });
    if (round < 0) continue;
    times.ours_ms.push_back(own_ms);
    times.optim_ms.push_back(optim_ms);
    times.fused_ms.push_back(fused_ms);
  }
  return times;
}

std::string text(const Estimate& estimate, int decimals) {
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", estimate.value, decimals, estimate.low, decimals,
                     estimate.high, decimals);
}

void compare(const std::string& model) {
  const Times times = interleaved(model);
  std::cout << fmt::format("{:<10}{:>22}{:>24}{:>20}{:>24}{:>20}\n", model,
                           text(median_estimate(times.ours_ms), 3),
                           text(median_estimate(times.optim_ms), 3),
                           text(paired_ratio(times.optim_ms, times.ours_ms), 2),
                           text(median_estimate(times.fused_ms), 3),
                           text(paired_ratio(times.fused_ms, times.ours_ms), 2));
}

}  // namespace

int main() {
  return run_program("bench/optimizer", [] {
    at::set_num_threads(1);
    std::cout << fmt::format(
                     "optimizer step in ms, median of {} rounds and its 95 % interval, 1 thread; "
                     "ratios: within the rounds\n",
                     kRounds)
              << fmt::format("{:<10}{:>22}{:>24}{:>20}{:>24}{:>20}\n", "model", "gradsync's SGD",
                             "torch::optim::SGD", "over gradsync's", "at::_fused_sgd_",
                             "over gradsync's");
    for (const char* model : {"lenet", "resnet18", "vgg11"})
      compare(model);
    return 0;
  });
}
