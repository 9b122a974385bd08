// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace gradsync {

/// What every value of a step of Adam or LAMB is computed with.
struct AdamFactors {
  float scale;  ///< of the gradient
  float beta1, beta2, epsilon;
  float rest1, rest2;  ///< 1 − β of each: in float the difference would lose digits
  float first_correction, second_correction;  ///< 1 / (1 − βᵗ), the second under the root
};

inline AdamFactors adam_factors(const OptimizerSettings& settings, std::int64_t step,
                                float gradient_scale) {
  const auto t = static_cast<double>(step);
  return {gradient_scale,
          static_cast<float>(settings.beta1),
          static_cast<float>(settings.beta2),
          static_cast<float>(settings.epsilon),
          static_cast<float>(1 - settings.beta1),
          static_cast<float>(1 - settings.beta2),
          static_cast<float>(1 / (1 - std::pow(settings.beta1, t))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(settings.beta2, t)))};
}

/// Takes gradient `g` into both moments; returns m̂ / (√v̂ + ε).
inline float adam_direction(float g, float& first, float& second, const AdamFactors& factors) {
  first = factors.beta1 * first + factors.rest1 * g;
  second = factors.beta2 * second + factors.rest2 * g * g;
  return first * factors.first_correction /
         (std::sqrt(second) * factors.second_correction + factors.epsilon);
}

inline std::vector<std::string> adam_moment_names() {
  return {"first_moment", "second_moment"};
}

}  // namespace gradsync
