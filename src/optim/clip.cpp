#include "optim/clip.h"

#include <algorithm>
#include <cmath>

#include "optim/chunks.h"

namespace gradsync {

double gradient_norm(const Replica& replica) {
  double sum = 0;
  for (const auto& parameter : replica.parameters)
    sum += sum_of_squares(parameter.grad().data_ptr<float>(), parameter.numel());
  return std::sqrt(sum);
}

double clip_factor(double norm, double largest) {
  constexpr double kGuard = 1e-6;
  return largest > 0 ? std::min(1.0, largest / (norm + kGuard)) : 1;
}

}  // namespace gradsync
