#pragma once

#include <cstddef>
#include <vector>

namespace gradsync::report {

/// The median of the finite values within `window` / 2 places of each value; NaN where there are
/// none. At the ends the window is cut off, not filled. `window` is odd.
std::vector<double> moving_median(const std::vector<double>& values, std::size_t window);

}  // namespace gradsync::report
