// The reference implementations of the kernels against what they must equal; tests/gpu compares
// the kernels with them.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "machine/finite.h"
#include "machine/kernels.h"

using namespace gradsync;

namespace {

LossScale after(LossScale scale, const std::vector<bool>& overflows) {
  for (const bool overflow : overflows)
    scale = next_loss_scale(scale, overflow);
  return scale;
}

}  // namespace

TEST_CASE(
    "the SGD reference is the formula, zeroes gradients, and does nothing else after an overflow") {
  std::vector<float> parameter = {1, -2, 3}, gradient = {4, 8, -16}, velocity = {0.5f, 0, 1};
  const SgdTensor tensor{parameter.data(), gradient.data(), velocity.data(), 3};
  StepState state;
  state.learning_rate = 0.5f;
  state.clip_factor = 0.5f;
  state.loss_scale.scale = 2;  // gradients count as 1, 2, −4
  SUBCASE("plain") {
    sgd_on_host(std::span(&tensor, 1), {0.5f, 0.25f, false}, state);
    CHECK(velocity == std::vector<float>{1.5f, 1.5f, -2.75f});
    CHECK(parameter == std::vector<float>{0.25f, -2.75f, 4.375f});
  }
  SUBCASE("nesterov") {
    sgd_on_host(std::span(&tensor, 1), {0.5f, 0.25f, true}, state);
    CHECK(velocity == std::vector<float>{1.5f, 1.5f, -2.75f});
    CHECK(parameter == std::vector<float>{0, -3.125f, 5.3125f});
  }
  SUBCASE("overflow") {
    state.first_bad = 0;
    sgd_on_host(std::span(&tensor, 1), {0.5f, 0.25f, false}, state);
    CHECK(parameter == std::vector<float>{1, -2, 3});
    CHECK(velocity == std::vector<float>{0.5f, 0, 1});
  }
  CHECK(gradient == std::vector<float>{0, 0, 0});
}

TEST_CASE("parts cover every value of every tensor once") {
  const std::vector<SgdTensor> tensors = {{nullptr, nullptr, nullptr, 2 * kSgdPart},
                                          {nullptr, nullptr, nullptr, 0},
                                          {nullptr, nullptr, nullptr, kSgdPart + 1}};
  const auto parts = sgd_parts(tensors);
  REQUIRE(parts.size() == 4);
  CHECK(parts[1].tensor == 0);
  CHECK(parts[1].part == 1);
  CHECK(parts[3].tensor == 2);
  CHECK(parts[3].part == 1);
}

TEST_CASE("packing takes the mean on its way to 16 bits, and unpacking brings it back") {
  const std::vector<float> values = {1, -3, 65520, 1e-8f};
  std::vector<std::uint16_t> wire(4);
  std::vector<float> back(4);
  pack_on_host(values, wire, 0.5f, HalfType::kBfloat16);
  unpack_on_host(wire, back, 1, HalfType::kBfloat16);
  CHECK(back[0] == 0.5f);
  CHECK(back[1] == -1.5f);
  CHECK(back[2] == 32768);
  pack_on_host(values, wire, 1, HalfType::kFloat16);
  unpack_on_host(wire, back, 2, HalfType::kFloat16);
  CHECK(back[1] == -6);
  CHECK(std::isinf(back[2]));
  CHECK(back[3] == 0);
}

TEST_CASE("a value's tensor is found at every boundary; the first bad one counts") {
  const std::vector<std::int64_t> ends = {0, 1, 4, 9};
  const std::vector<std::int64_t> expected = {0, 1, 1, 1, 2, 2, 2, 2, 2};
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(tensor_at(static_cast<std::int64_t>(i), ends.data(), 3) == expected[i]);
  StepState state;
  std::vector<float> values(9, 1);
  find_bad_on_host(values, ends, state);
  CHECK(state.first_bad == StepState::kNoneBad);
  values[8] = -std::numeric_limits<float>::infinity();
  find_bad_on_host(values, ends, state);
  CHECK(state.first_bad == 2);
  values[3] = std::nanf("");
  find_bad_on_host(values, ends, state);
  CHECK(state.first_bad == 1);
  CHECK(is_bad(std::nanf("")));
  CHECK_FALSE(is_bad(std::numeric_limits<float>::max()));
}

TEST_CASE("the loss scale follows torch.amp.GradScaler") {
  const LossScale start{LossScale::kStart, 0};
  CHECK(after(start, {true}) == LossScale{32768, 0});
  CHECK(after(start, {true, true, false}) == LossScale{16384, 1});
  CHECK(after(start, std::vector<bool>(1999, false)) == LossScale{65536, 1999});
  CHECK(after(start, std::vector<bool>(2000, false)) == LossScale{131072, 0});
  std::vector<bool> late_overflow(1999, false);
  late_overflow.push_back(true);
  late_overflow.insert(late_overflow.end(), 2000, false);
  CHECK(after(start, late_overflow) == LossScale{65536, 0});
  CHECK(next_loss_scale({0x1p127f, 1999}, false) == LossScale{0x1p127f, 0});
}

TEST_CASE("a step ends with the scale it leaves and nothing found bad") {
  StepState state;
  state.first_bad = 3;
  finish_step(state);
  CHECK(state.loss_scale == LossScale{1, 0});  // no scaling: bf16, fp32
  CHECK(state.skipped_steps == 1);
  CHECK_FALSE(skips_step(state));
  state.scales = true;
  state.first_bad = 0;
  finish_step(state);
  CHECK(state.loss_scale == LossScale{0.5f, 0});
}
