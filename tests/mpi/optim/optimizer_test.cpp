// SPDX-License-Identifier: BSD-3-Clause
#include "optim/optimizer.h"

#include <cmath>

#include <doctest/doctest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "base/error.h"
#include "mpi/ranks.h"

using namespace gradsync;

namespace {

constexpr double kRate = 0.05, kDecay = 5e-4;
constexpr int kOptimizerSteps = 5;

Replica lenet() {
  return make_replica("lenet", 2, Layout::kNhwc);
}

OptimizerSettings settings_of(const std::string& name) {
  OptimizerSettings settings;
  settings.name = name;
  settings.weight_decay = kDecay;
  return settings;
}

/// The same random gradients for both.
void give_gradients(Replica& one, Replica& other) {
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    const torch::Tensor gradient = torch::randn_like(one.parameters[i].detach());
    one.parameters[i].mutable_grad() = gradient.clone();
    other.parameters[i].mutable_grad() = gradient.clone();
  }
}

double difference(const Replica& one, const Replica& other) {
  return (flat_parameters(one) - flat_parameters(other)).abs().max().item<double>();
}

using Maker = std::unique_ptr<Optimizer> (*)(Replica&, const OptimizerSettings&);

/// Those that GPUs run, here on the CPU.
const std::vector<OptimizerEntry> kOnTensors = {
    {"lars", make_lars_on_tensors}, {"lamb", make_lamb_on_tensors}, {"adam", make_adam_on_tensors}};

/// Both forms of every optimizer.
std::vector<OptimizerEntry> all_forms() {
  std::vector<OptimizerEntry> all = optimizers();
  all.insert(all.end(), kOnTensors.begin(), kOnTensors.end());
  return all;
}

/// Steps of ours beside steps of `reference` on a replica of its own.
template <typename Reference>
double difference_after_steps(const OptimizerSettings& settings, Reference&& reference,
                              Maker make = make_optimizer) {
  Replica ours = lenet(), theirs = lenet();
  const auto optimizer = make(ours, settings);
  for (int step = 1; step <= kOptimizerSteps; ++step) {
    give_gradients(ours, theirs);
    optimizer->step(kRate);
    reference(theirs, step);
  }
  for (const auto& parameter : ours.parameters)
    CHECK(parameter.grad().abs().max().item<double>() == 0);
  return difference(ours, theirs);
}

template <typename Torch, typename Options>
double difference_to_torch(const OptimizerSettings& settings, const Options& options,
                           Maker make = make_optimizer) {
  std::unique_ptr<Torch> torchs;
  const auto step = [&](Replica& replica, int) {
    if (!torchs) torchs = std::make_unique<Torch>(replica.parameters, options);
    torchs->step();
  };
  return difference_after_steps(settings, step, make);
}

bool exempt(const torch::Tensor& parameter) {
  return parameter.dim() <= 1;
}

/// Calls `update(w, g, i)` in double for every parameter and keeps the w that it returns.
template <typename Update>
void update_in_double(Replica& replica, Update&& update) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < replica.parameters.size(); ++i) {
    torch::Tensor& parameter = replica.parameters[i];
    parameter.copy_(update(parameter.to(torch::kFloat64), parameter.grad().to(torch::kFloat64), i));
  }
}

}  // namespace

TEST_CASE("SGD is torch::optim::SGD, with and without Nesterov's momentum" * test::once()) {
  OptimizerSettings settings = settings_of("sgd");
  for (const bool nesterov : {false, true}) {
    settings.nesterov = nesterov;
    const auto options =
        torch::optim::SGDOptions(kRate).momentum(0.9).weight_decay(kDecay).nesterov(nesterov);
    CHECK(difference_to_torch<torch::optim::SGD>(settings, options) <= 1e-6);
  }
}

TEST_CASE("Adam is torch::optim::Adam" * test::once()) {
  const auto options =
      torch::optim::AdamOptions(kRate).betas({0.9, 0.999}).eps(1e-8).weight_decay(kDecay);
  for (const Maker make : {make_optimizer, make_adam_on_tensors})
    CHECK(difference_to_torch<torch::optim::Adam>(settings_of("adam"), options, make) <= 2e-6);
}

TEST_CASE("LARS follows the paper's formula, biases at the plain rate" * test::once()) {
  const OptimizerSettings settings = settings_of("lars");
  std::vector<torch::Tensor> velocity;
  const auto paper = [&](Replica& replica, int) {
    update_in_double(replica, [&](const torch::Tensor& w, const torch::Tensor& g, std::size_t i) {
      const double decay = exempt(w) ? 0 : kDecay;
      const double weight = w.norm().item<double>(), gradient = g.norm().item<double>();
      const double local =
          exempt(w) ? 1 : settings.trust_coefficient * weight / (gradient + decay * weight);
      const torch::Tensor change = kRate * local * (g + decay * w);
      velocity[i] = velocity[i].defined() ? settings.momentum * velocity[i] + change : change;
      return w - velocity[i];
    });
  };
  for (const Maker make : {make_optimizer, make_lars_on_tensors}) {
    velocity.assign(lenet().parameters.size(), {});
    CHECK(difference_after_steps(settings, paper, make) <= 2e-6);
  }
}

TEST_CASE("LAMB follows the paper's algorithm, biases at the plain rate" * test::once()) {
  const OptimizerSettings settings = settings_of("lamb");
  std::vector<torch::Tensor> m, v;
  const auto paper = [&](Replica& replica, int step) {
    update_in_double(replica, [&](const torch::Tensor& w, const torch::Tensor& g, std::size_t i) {
      if (!m[i].defined()) m[i] = torch::zeros_like(w), v[i] = torch::zeros_like(w);
      m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
      v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
      const torch::Tensor first = m[i] / (1 - std::pow(settings.beta1, step)),
                          second = v[i] / (1 - std::pow(settings.beta2, step));
      const torch::Tensor direction =
          first / (second.sqrt() + settings.epsilon) + (exempt(w) ? 0 : kDecay) * w;
      const double ratio =
          exempt(w) ? 1 : w.norm().item<double>() / direction.norm().item<double>();
      return w - kRate * ratio * direction;
    });
  };
  for (const Maker make : {make_optimizer, make_lamb_on_tensors}) {
    m.assign(lenet().parameters.size(), {});
    v = m;
    CHECK(difference_after_steps(settings, paper, make) <= 2e-5);
  }
}

TEST_CASE("a layer of zeros, or without a gradient, is stepped at the plain rate and stays finite" *
          test::once()) {
  for (const OptimizerEntry& entry : all_forms()) {
    if (entry.name != "lars" && entry.name != "lamb") continue;
    Replica replica = lenet(), other = lenet();
    give_gradients(replica, other);
    {
      const torch::NoGradGuard no_grad;
      replica.parameters[0].zero_();
      replica.parameters[1].mutable_grad().zero_();
    }
    entry.make(replica, settings_of(entry.name))->step(kRate);
    CHECK(flat_parameters(replica).isfinite().all().item<bool>());
    CHECK(replica.parameters[0].abs().max().item<double>() > 0);
  }
}

TEST_CASE("clipping is torch's clip_grad_norm_" * test::once()) {
  Replica ours = lenet(), theirs = lenet();
  give_gradients(ours, theirs);
  const double reference = torch::nn::utils::clip_grad_norm_(theirs.parameters, 0.5);
  CHECK(gradient_norm(ours) == doctest::Approx(reference).epsilon(1e-6));
  CHECK(clip_factor(gradient_norm(ours), 0) == 1);
  CHECK(clip_factor(0.3, 0.5) == 1);
  OptimizerSettings settings = settings_of("sgd");
  make_optimizer(ours, settings)->step(kRate, clip_factor(gradient_norm(ours), 0.5));
  make_optimizer(theirs, settings)->step(kRate);
  CHECK(difference(ours, theirs) <= 1e-7);
}

TEST_CASE("clipping on a device gives the factor that it gives on the host" * test::once()) {
  Replica ours = lenet(), theirs = lenet();
  give_gradients(ours, theirs);
  for (const float scale : {1.0f, 1024.0f}) {
    const torch::Tensor loss_scale = torch::tensor(scale);
    for (const double largest : {0.5, 1e-3, 1e6}) {
      const double factor = clip_factor(gradient_norm(ours) / double{scale}, largest);
      CHECK(
          clip_factor_on_device(gradient_norm_on_device(ours), largest, loss_scale).item<float>() ==
          static_cast<float>(factor));
    }
  }
}

TEST_CASE("a factor that the host never reads scales the gradients as one that it gives" *
          test::once()) {
  for (const OptimizerEntry& entry : all_forms()) {
    Replica ours = lenet(), theirs = lenet();
    const auto here = entry.make(ours, settings_of(entry.name)),
               there = entry.make(theirs, settings_of(entry.name));
    for (int step = 0; step < kOptimizerSteps; ++step) {
      give_gradients(ours, theirs);
      here->step(kRate, 0.25);
      there->prepare(kRate, 1);
      there->scale_gradients(torch::tensor(0.25f));
      there->apply();
    }
    CHECK_MESSAGE(parameter_hash(ours) == parameter_hash(theirs), entry.name);
  }
}

TEST_CASE("what an optimizer remembers goes into a checkpoint and back" * test::once()) {
  for (const OptimizerEntry& entry : all_forms()) {
    Replica straight = lenet(), resumed = lenet();
    const auto first = entry.make(straight, settings_of(entry.name));
    give_gradients(straight, resumed);
    first->step(kRate);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < straight.parameters.size(); ++i)
      resumed.parameters[i].copy_(straight.parameters[i]);
    const auto second = entry.make(resumed, settings_of(entry.name));
    second->steps() = first->steps();
    for (std::size_t which = 0; which < first->moment_names().size(); ++which)
      for (std::size_t i = 0; i < straight.parameters.size(); ++i)
        second->moment(which, i).copy_(first->moment(which, i));
    give_gradients(straight, resumed);
    first->step(kRate);
    second->step(kRate);
    CHECK_MESSAGE(parameter_hash(straight) == parameter_hash(resumed), entry.name);
  }
}

TEST_CASE("a gradient laid out otherwise than its parameter is refused by every optimizer" *
          test::once()) {
  for (const OptimizerEntry& entry : all_forms()) {
    Replica replica = lenet();
    for (auto& parameter : replica.parameters)
      parameter.mutable_grad() = torch::zeros(parameter.sizes());
    CHECK_THROWS_AS(entry.make(replica, settings_of(entry.name))->step(kRate), Error);
  }
  Replica replica = lenet();
  CHECK_THROWS_AS(make_optimizer(replica, settings_of("sgdm")), Error);
}
