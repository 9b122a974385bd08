#include "train/gradient_guard.h"

#include <bit>
#include <limits>

#include "timing/clock.h"

namespace gradsync {

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t bad = 0;
  for (const float value : values)
    bad |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

GradientGuard::GradientGuard(const Replica& replica)
    : replica_(replica),
      hooks_(replica.parameters, [this](std::size_t parameter) { look_at(parameter); }) {}

void GradientGuard::look_at(std::size_t parameter) {
  const torch::Tensor& gradient = replica_.parameters[parameter].grad();
  const std::span<float> values(gradient.data_ptr<float>(),
                                static_cast<std::size_t>(gradient.numel()));
  if (std::exchange(poison_, false)) values[0] = std::numeric_limits<float>::quiet_NaN();
  if (first_bad_ < 0 && !all_finite(values)) first_bad_ = static_cast<std::int64_t>(parameter);
  last_seen_s_ = now_s();
}

}  // namespace gradsync
