#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace gradsync::report {

/// Draws that are the same on every machine (std::uniform_int_distribution is not).
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}
  /// Uniform in 0 … n − 1, but for a part in 2^64/n; requires n > 0.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

 private:
  std::mt19937_64 random_;
};

}  // namespace gradsync::report
