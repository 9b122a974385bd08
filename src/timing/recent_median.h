#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gradsync {

/// Median of the last values, at most `kKept`: the same work and memory for every one.
class RecentMedian {
 public:
  static constexpr std::size_t kKept = 63;

  void add(double value) { values_[static_cast<std::size_t>(count_++) % kKept] = value; }
  /// Values added so far.
  std::int64_t count() const { return count_; }
  /// The upper one of the two in the middle. Requires count() > 0.
  double value() const {
    auto sorted = values_;
    const auto end =
        sorted.begin() + static_cast<std::ptrdiff_t>(std::min<std::int64_t>(count_, kKept));
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
  }

 private:
  std::array<double, kKept> values_{};
  std::int64_t count_ = 0;
};

}  // namespace gradsync
