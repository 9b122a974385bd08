// SPDX-License-Identifier: BSD-3-Clause
#include <limits>

#include <doctest/doctest.h>

#include "mpi/ranks.h"
#include "optim/optimizer.h"

using namespace gradsync;

namespace {

OptimizerSettings scaled(const std::string& name) {
  OptimizerSettings settings;
  settings.name = name;
  settings.scales_loss = true;
  return settings;
}

/// Gradients of a seed, times `scale`, with an infinity in one of the last parameter's if asked
/// for.
void give_scaled_gradients(Replica& replica, std::uint64_t seed, float scale,
                           bool overflow = false) {
  torch::manual_seed(seed);
  for (auto& parameter : replica.parameters)
    parameter.mutable_grad() = torch::randn_like(parameter.detach()) * scale;
  if (overflow)
    replica.parameters.back().mutable_grad().view({-1})[0] = std::numeric_limits<float>::infinity();
}

}  // namespace

TEST_CASE("the fused step is the plain one, bit for bit, also when gradients move" * test::once()) {
  for (const bool nesterov : {false, true}) {
    OptimizerSettings settings;
    settings.nesterov = nesterov;
    Replica one = make_replica("lenet", 2, Layout::kNhwc);
    Replica other = make_replica("lenet", 2, Layout::kNhwc);
    const auto plain = make_optimizer(one, settings);
    FusedSgd fused(other, settings);
    for (std::uint64_t step = 0; step < 4; ++step) {
      give_scaled_gradients(one, step, 1);  // new tensors each time
      give_scaled_gradients(other, step, 1);
      plain->step(0.05, 0.5);
      fused.step(0.05, 0.5);
      CHECK(parameter_hash(one) == parameter_hash(other));
      CHECK(other.parameters[0].grad().abs().max().item<float>() == 0);
    }
    CHECK(torch::equal(plain->moment(0, 2), fused.moment(0, 2)));
  }
}

TEST_CASE("with a loss scale every optimizer takes gradients over it and leaves overflows out" *
          test::once()) {
  for (const OptimizerEntry& entry : optimizers()) {
    CAPTURE(entry.name);
    Replica scaled_one = make_replica("lenet", 2, Layout::kNhwc);
    Replica plain_one = make_replica("lenet", 2, Layout::kNhwc);
    const auto optimizer = make_optimizer(scaled_one, scaled(entry.name));
    OptimizerSettings settings;
    settings.name = entry.name;
    const auto plain = make_optimizer(plain_one, settings);
    CHECK(optimizer->loss_scale().item<float>() == 65536);
    const std::vector<bool> overflows = {true, false, true, true, false};
    for (std::size_t step = 0; step < overflows.size(); ++step) {
      give_scaled_gradients(scaled_one, step, optimizer->loss_scale().item<float>(),
                            overflows[step]);
      optimizer->step(0.05);
      CHECK(scaled_one.parameters[0].grad().abs().max().item<float>() == 0);
      if (overflows[step]) continue;
      give_scaled_gradients(plain_one, step, 1);
      plain->step(0.05);
    }
    // Scales are powers of two, so nothing is rounded otherwise.
    CHECK(parameter_hash(scaled_one) == parameter_hash(plain_one));
    CHECK(optimizer->steps() == plain->steps());
    CHECK(optimizer->read_state().loss_scale == LossScale{8192, 1});
    CHECK(optimizer->read_state().skipped_steps == 3);
  }
}
