// SPDX-License-Identifier: BSD-3-Clause
#include "model/batch_norm.h"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>

#include "model/replica.h"
#include "mpi/ranks.h"

using namespace gradsync;

namespace {

constexpr int kChannels = 5, kImagesPerRank = 6;

RanksOfNorm all_ranks() {
  const MPI_Comm world = test::session().world();
  const int count = test::session().size();
  return {[world, count](std::span<float> values) {
            MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                          MPI_SUM, world);
            for (float& value : values)
              value /= static_cast<float>(count);
          },
          count};
}

/// What one pass over `images` gives: outputs, gradient of the images, of weight and bias, and the
/// running statistics.
struct Pass {
  torch::Tensor outputs, images_gradient, weight_gradient, bias_gradient, mean, variance;
};

template <typename Norm>
Pass pass(Norm norm, torch::Tensor images, const torch::Tensor& outputs_gradient) {
  {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(torch::linspace(0.5, 1.5, kChannels));
    norm->bias.copy_(torch::linspace(-1, 1, kChannels));
  }
  images = images.clone().requires_grad_();
  const torch::Tensor outputs = norm->forward(images);
  outputs.backward(outputs_gradient);
  return {outputs.detach(),  images.grad(),      norm->weight.grad(),
          norm->bias.grad(), norm->running_mean, norm->running_var};
}

double largest(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

torch::Tensor sum_over_ranks(torch::Tensor values) {
  values = values.contiguous().clone();
  MPI_Allreduce(MPI_IN_PLACE, values.data_ptr<float>(), static_cast<int>(values.numel()), MPI_FLOAT,
                MPI_SUM, test::session().world());
  return values;
}

}  // namespace

TEST_CASE("batch norm over ranks is torch's on one rank with the whole batch" *
          test::several_ranks()) {
  const int ranks = test::session().size(), rank = test::session().rank();
  torch::manual_seed(4);
  // Far from zero, and every rank's images elsewhere: where a careless sum of squares fails.
  const torch::Tensor offsets =
      torch::arange(ranks).repeat_interleave(kImagesPerRank).view({-1, 1, 1, 1}) * 3 + 100;
  const torch::Tensor images = torch::randn({ranks * kImagesPerRank, kChannels, 4, 3}) + offsets;
  const torch::Tensor gradient = torch::randn_like(images);
  const Pass whole = pass(torch::nn::BatchNorm2d(kChannels), images, gradient);

  BatchNorm norm(kChannels);
  norm->share_statistics(all_ranks());
  const auto mine = [&](const torch::Tensor& all) {
    return all.narrow(0, rank * kImagesPerRank, kImagesPerRank);
  };
  const Pass part = pass(norm, mine(images), mine(gradient));
  CHECK(largest(part.outputs, mine(whole.outputs)) <= 1e-3);
  CHECK(largest(part.images_gradient, mine(whole.images_gradient)) <= 1e-3);
  CHECK(largest(sum_over_ranks(part.weight_gradient), whole.weight_gradient) <= 1e-2);
  CHECK(largest(sum_over_ranks(part.bias_gradient), whole.bias_gradient) <= 1e-3);
  CHECK(largest(part.mean, whole.mean) <= 1e-4);
  CHECK(largest(part.variance, whole.variance) <= 1e-3);
}

TEST_CASE("without shared statistics, and in evaluation, it is torch's batch norm to the bit") {
  const torch::Tensor images = torch::randn({4, kChannels, 3, 3});
  const Pass theirs = pass(torch::nn::BatchNorm2d(kChannels), images, torch::ones_like(images));
  const Pass ours = pass(BatchNorm(kChannels), images, torch::ones_like(images));
  CHECK(torch::equal(ours.outputs, theirs.outputs));
  CHECK(torch::equal(ours.images_gradient, theirs.images_gradient));
  CHECK(torch::equal(ours.variance, theirs.variance));
  BatchNorm shared(kChannels);
  shared->share_statistics(all_ranks());
  shared->eval();
  torch::nn::BatchNorm2d reference(kChannels);
  reference->eval();
  CHECK(torch::equal(shared->forward(images), reference->forward(images)));
}

TEST_CASE("batch norm over ranks of images that are all alike is finite" * test::once()) {
  // The mean over three equal ranks, which rounds.
  const RanksOfNorm three{[](std::span<float> values) {
                            for (float& value : values)
                              value = (value + value + value) / 3;
                          },
                          3};
  for (int i = 0; i < 50; ++i) {
    BatchNorm norm(kChannels);
    norm->share_statistics(three);
    const torch::Tensor images = torch::full({2, kChannels, 4, 4}, 100.0 + 0.37 * i);
    CHECK_MESSAGE(torch::isfinite(norm->forward(images)).all().item<bool>(), i);
    CHECK(norm->running_var.min().item<float>() >= 0);
  }
}

TEST_CASE("every batch norm of a network shares its statistics" * test::once()) {
  int exchanges = 0;
  Replica replica = make_replica("resnet18", 1, Layout::kNhwc);
  share_statistics(*replica.network, {[&](std::span<float>) { ++exchanges; }, 1});
  replica.network->forward(torch::randn({2, 3, 32, 32})).sum().backward();
  CHECK(exchanges == 2 * 20);
}
