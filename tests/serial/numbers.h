#pragma once

#include <limits>
#include <vector>

namespace gradsync {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

}  // namespace gradsync
