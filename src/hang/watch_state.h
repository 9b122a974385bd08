#pragma once

#include <atomic>
#include <cstdint>

#include "hang/watched_phases.h"

namespace gradsync {

/// What the threads of a rank have told its watchdog, beside its status in shared memory.
struct WatchState {
  explicit WatchState(const WatchLimits& given) : fixed(given), timeout_s(given.timeout_s) {}

  WatchLimits limits() const {
    WatchLimits now = fixed;
    now.timeout_s = timeout_s;
    return now;
  }

  const WatchLimits fixed;
  std::atomic<double> timeout_s;
  std::atomic<int> depth{0};                      ///< collectives inside each other
  std::atomic<std::int64_t> waits{0}, phases{0};  ///< begun or ended so far
  std::atomic<bool> never{false};                 ///< the wait can never end
};

}  // namespace gradsync
