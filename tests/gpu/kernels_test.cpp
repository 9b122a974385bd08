// SPDX-License-Identifier: BSD-3-Clause
#include "machine/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gpu/gpu.h"

using namespace gradsync;
using namespace gradsync::test;

namespace {

constexpr std::int64_t kValues = 100'003;

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = normal(random);
  return values;
}

/// Largest difference relative to 1 + |value|.
double difference(const std::vector<float>& one, const std::vector<float>& other) {
  double worst = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    worst = std::max(worst, std::fabs(double{one[i]} - other[i]) / (1 + std::fabs(double{one[i]})));
  return worst;
}

/// Parameter, gradient and velocity, one after the other, each `count` values from `shift` on.
struct Triple {
  std::vector<float> values = random_values(3 * (kValues + 4), 1);
  static SgdTensor tensor(float* all, std::int64_t shift, std::int64_t count) {
    return {all + shift, all + kValues + 4 + shift, all + 2 * (kValues + 4) + shift, count};
  }
};

}  // namespace

TEST_CASE(
    "fused SGD equals its reference implementation, aligned or not, with and without Nesterov's "
    "momentum") {
  if (skips("fused SGD")) return;
  for (const std::int64_t shift : {0, 1})
    for (const bool nesterov : {false, true}) {
      Triple host;
      const DeviceValues<float> device{std::span<const float>(host.values)};
      StepState state;
      state.learning_rate = 0.1f;
      state.clip_factor = 0.5f;
      const SgdRule rule{0.9f, 5e-4f, nesterov};
      const SgdTensor here = Triple::tensor(host.values.data(), shift, kValues);
      const SgdTensor there = Triple::tensor(device.get(), shift, kValues);
      const auto parts = sgd_parts(std::span(&here, 1));
      const DeviceValues<SgdTensor> tensors{std::span(&there, 1)};
      const DeviceValues<SgdPart> device_parts{std::span<const SgdPart>(parts)};
      const DeviceValues<StepState> device_state{std::span<const StepState>(&state, 1)};
      const Stream stream;
      for (int step = 0; step < 2; ++step) {
        launch_sgd(tensors.get(), device_parts.get(), static_cast<std::int64_t>(parts.size()), rule,
                   device_state.get(), stream);
        sgd_on_host(std::span(&here, 1), rule, state);
      }
      CHECK(difference(host.values, device.copy()) <= 1e-6);
    }
}

TEST_CASE("after an overflow fused SGD only zeroes the gradients, and the scale is halved") {
  if (skips("fused SGD after an overflow")) return;
  Triple host;
  host.values[static_cast<std::size_t>(kValues) + 4 + 77] = std::numeric_limits<float>::infinity();
  const DeviceValues<float> device{std::span<const float>(host.values)};
  StepState state;
  state.loss_scale.scale = 1024;
  state.scales = true;
  const DeviceValues<StepState> device_state{std::span<const StepState>(&state, 1)};
  const SgdTensor tensor = Triple::tensor(device.get(), 0, kValues);
  const auto parts = sgd_parts(std::span(&tensor, 1));
  const DeviceValues<SgdTensor> tensors{std::span(&tensor, 1)};
  const DeviceValues<SgdPart> device_parts{std::span<const SgdPart>(parts)};
  const Stream stream;
  launch_find_bad(tensors.get(), device_parts.get(), static_cast<std::int64_t>(parts.size()),
                  device_state.get(), stream);
  CHECK(device_state.copy()[0].first_bad == 0);
  launch_sgd(tensors.get(), device_parts.get(), static_cast<std::int64_t>(parts.size()),
             {0.9f, 0, false}, device_state.get(), stream);
  launch_finish_step(device_state.get(), stream);
  const StepState after = device_state.copy()[0];
  CHECK(after.loss_scale == LossScale{512, 0});
  CHECK(after.skipped_steps == 1);
  CHECK(after.first_bad == StepState::kNoneBad);
  std::fill_n(host.values.begin() + kValues + 4, kValues, 0.0f);
  CHECK(device.copy() == host.values);
}

TEST_CASE(
    "packing and unpacking give the bits of their reference implementations, aligned or not") {
  if (skips("packing to the wire type")) return;
  auto values = random_values(kValues, 3);
  values[5] = 1e30f, values[6] = -1e-7f, values[7] = 65519.9f, values[8] = 1e-40f;
  const DeviceValues<float> device{std::span<const float>(values)};
  const DeviceValues<std::uint16_t> wire(values.size());
  const DeviceValues<float> back(values.size());
  const Stream stream;
  for (const HalfType type : {HalfType::kBfloat16, HalfType::kFloat16})
    for (const std::int64_t shift : {0, 3}) {
      const std::int64_t count = kValues - shift;
      std::vector<std::uint16_t> expected(values.size());
      std::vector<float> expected_back(values.size());
      const auto length = static_cast<std::size_t>(count), from = static_cast<std::size_t>(shift);
      pack_on_host(std::span(values).subspan(from), std::span(expected).first(length), 0.25f, type);
      unpack_on_host(std::span(expected).first(length), std::span(expected_back).first(length), 2,
                     type);
      launch_pack(device.get() + shift, wire.get(), count, 0.25f, type, stream);
      launch_unpack(wire.get(), back.get(), count, 2, type, stream);
      auto got = wire.copy();
      auto got_back = back.copy();
      got.resize(length), expected.resize(length);
      got_back.resize(length), expected_back.resize(length);
      CHECK(got == expected);
      CHECK(got_back == expected_back);
    }
}

TEST_CASE("the first bad tensor is found wherever its value lies") {
  if (skips("the finite check of gradients")) return;
  const std::vector<std::int64_t> ends = {0, 3, 10, 50'001, kValues};
  const Stream stream;
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{9},
                                 std::int64_t{50'000}, std::int64_t{50'001}, kValues - 1}) {
    auto values = random_values(kValues, 4);
    if (bad >= 0) values[static_cast<std::size_t>(bad)] = std::nanf("");
    if (bad == 9) values[70'000] = -std::numeric_limits<float>::infinity();
    const StepState state;
    const DeviceValues<StepState> device_state{std::span(&state, 1)};
    const DeviceValues<float> device{std::span<const float>(values)};
    std::vector<SgdTensor> gradients;
    for (std::size_t i = 0; i + 1 < ends.size(); ++i)
      gradients.push_back({nullptr, device.get() + ends[i], nullptr, ends[i + 1] - ends[i]});
    const auto parts = sgd_parts(gradients);
    const DeviceValues<SgdTensor> tensors{std::span<const SgdTensor>(gradients)};
    const DeviceValues<SgdPart> device_parts{std::span<const SgdPart>(parts)};
    launch_find_bad(tensors.get(), device_parts.get(), static_cast<std::int64_t>(parts.size()),
                    device_state.get(), stream);
    const auto holds = std::upper_bound(ends.begin(), ends.end(), bad) - ends.begin() - 1;
    CHECK(device_state.copy()[0].first_bad ==
          (bad < 0 ? StepState::kNoneBad : static_cast<unsigned long long>(holds)));
  }
}
