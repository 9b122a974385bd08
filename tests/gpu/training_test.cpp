// SPDX-License-Identifier: BSD-3-Clause
// What training does on the device, against the same on the CPU.
#include <doctest/doctest.h>

#include "data/cifar10.h"
#include "gpu/gpu.h"
#include "optim/optimizer.h"
#include "serial/test_folder.h"
#include "train/iteration.h"

using namespace gradsync;
using namespace gradsync::test;

TEST_CASE("resident batches on the GPU are the loader's, bit for bit") {
  if (skips("resident batches")) return;
  const TestFolder folder;
  synthesize(folder / "set", 3, 250, 10);
  const Cifar10 data(folder / "set");
  TrainOptions options;
  options.batch_per_rank = 32;
  for (const ImageType type : {ImageType::kFloat32, ImageType::kBfloat16, ImageType::kFloat16})
    for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
      const DataSource on_device(data, std::make_shared<ResidentData>(data, torch::kCUDA, type));
      Feed loaded(data, options, layout, 0, 1, FeedShare::kOwn);
      Feed resident(on_device, options, layout, 0, 1, FeedShare::kOwn);
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        loaded.begin_epoch(epoch);
        resident.begin_epoch(epoch);
        for (std::int64_t pass = 0; pass < loaded.iterations_of(epoch); ++pass) {
          FeedBatch expected = loaded.next();
          const FeedBatch got = resident.next();
          CHECK(torch::equal(got.images.cpu(), expected.images.to(scalar_type(type))));
          CHECK(torch::equal(got.labels.cpu(), expected.labels));
          loaded.recycle(std::move(expected));
        }
      }
    }
}

namespace {

Replica on_gpu(Replica replica) {
  replica.network->to(torch::kCUDA);
  return replica;
}

}  // namespace

TEST_CASE("the optimizer on the GPU steps as on the CPU, and leaves overflows out") {
  if (skips("the optimizer on the GPU")) return;
  OptimizerSettings settings;
  settings.scales_loss = true;
  Replica here = make_replica("resnet18", 1, Layout::kNhwc);
  Replica there = on_gpu(make_replica("resnet18", 1, Layout::kNhwc));
  const auto cpu = make_optimizer(here, settings), gpu = make_optimizer(there, settings);
  const torch::NoGradGuard no_grad;
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < here.parameters.size(); ++i) {
      torch::Tensor gradient = torch::randn_like(here.parameters[i]) * cpu->loss_scale();
      if (step == 2 && i == 5) gradient.view({-1})[0] = INFINITY;
      here.parameters[i].mutable_grad() = gradient;
      there.parameters[i].mutable_grad() = gradient.to(torch::kCUDA);
    }
    cpu->step(0.1, 0.5);
    gpu->step(0.1, 0.5);
    CHECK(gpu->read_state().loss_scale == cpu->read_state().loss_scale);
    CHECK(gpu->read_state().skipped_steps == cpu->read_state().skipped_steps);
  }
  for (std::size_t i = 0; i < here.parameters.size(); ++i) {
    CHECK(torch::allclose(there.parameters[i].cpu(), here.parameters[i], 1e-5, 1e-6));
    CHECK(there.parameters[i].grad().count_nonzero().item<std::int64_t>() == 0);
  }
}

TEST_CASE("every other optimizer on the GPU steps as on the CPU, its factors in device memory") {
  if (skips("the optimizers on tensors on the GPU")) return;
  for (const char* name : {"lars", "lamb", "adam"}) {
    CAPTURE(name);
    OptimizerSettings settings;
    settings.name = name;
    Replica here = make_replica("resnet18", 1, Layout::kNhwc);
    Replica there = on_gpu(make_replica("resnet18", 1, Layout::kNhwc));
    const auto cpu = make_optimizer(here, settings), gpu = make_optimizer(there, settings);
    const torch::NoGradGuard no_grad;
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < here.parameters.size(); ++i) {
        here.parameters[i].mutable_grad() = torch::randn_like(here.parameters[i]);
        there.parameters[i].mutable_grad() = here.parameters[i].grad().to(torch::kCUDA);
      }
      const double factor = clip_factor(gradient_norm(here), 1);
      cpu->step(0.01, factor);
      gpu->prepare(0.01, 1);
      const torch::Tensor on_device =
          clip_factor_on_device(gradient_norm_on_device(there), 1, gpu->loss_scale());
      CHECK(on_device.item<float>() == doctest::Approx(factor).epsilon(1e-6));
      gpu->scale_gradients(on_device);
      gpu->apply();
    }
    for (std::size_t i = 0; i < here.parameters.size(); ++i)
      CHECK(torch::allclose(there.parameters[i].cpu(), here.parameters[i], 1e-4, 1e-5));
  }
}
