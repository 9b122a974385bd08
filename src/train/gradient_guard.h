#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/replica.h"
#include "sync/gradient_hooks.h"

namespace gradsync {

/// Looks at every gradient of this rank as the backward pass completes it, before it is exchanged:
/// after the exchange a NaN is everybody's. Runs in every mode alike, so that it favours none.
class GradientGuard {
 public:
  /// The replica must outlive it. Made before the mode attaches, so that its hook runs first.
  explicit GradientGuard(const Replica& replica);

  /// Index of the first parameter whose gradient held a NaN or an infinity since `reset`, or −1.
  std::int64_t first_bad() const { return first_bad_; }
  void reset() { first_bad_ = -1; }

  /// When the last gradient completed, on the steady clock.
  double last_seen_s() const { return last_seen_s_; }

  /// The next gradient that completes gets a NaN in it (a fault for tests).
  void poison_next() { poison_ = true; }

 private:
  void look_at(std::size_t parameter);

  const Replica& replica_;
  std::int64_t first_bad_ = -1;
  double last_seen_s_ = 0;
  bool poison_ = false;
  GradientHooks hooks_;
};

/// Whether all values are finite; vectorises.
bool all_finite(std::span<const float> values);

}  // namespace gradsync
