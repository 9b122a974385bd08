#pragma once

#include <atomic>
#include <cstdint>

#include "transport/transport.h"

namespace gradsync {

/// How long a rank spins for another one before it lets others run: as long as that has paid
/// lately. Where ranks share cores, or wait for one that computes, it soon does not; that some of
/// the others run beside it, and come at once, does not make it longer.
class SpinBudget {
 public:
  int spins(Waiting waiting) const;
  /// The other came after so many spins.
  void paid(int spins);
  /// It did not come.
  void wasted();

 private:
  static constexpr int kMost = 2000, kFewest = 4, kBesideCompute = 50;
  int spins_ = kMost;
};

/// A number that only its own rank raises and the other ranks of the node wait for. Lives in memory
/// that all of them map, on a cache line that it shares with nothing but what it announces. It
/// wraps: two values are compared by their difference, so at most 2^31 − 1 may lie between what is
/// awaited and what is there.
class SharedCounter {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(std::uint32_t wanted) const {
    return static_cast<std::int32_t>(value() - wanted) >= 0;
  }

  /// By its own rank only. A reader of the new value sees all earlier writes. Wakes
  /// the ranks that sleep; costs no system call where none does.
  void raise_to(std::uint32_t value);

  /// Returns once the counter has reached `wanted`. Spins for a moment (kSpin: some microseconds;
  /// kSleep: less, since the core has other work), then lets others run, then sleeps in the kernel:
  /// it never takes a core for long, whatever the number of ranks on it.
  void wait_for(std::uint32_t wanted, Waiting waiting, SpinBudget& budget);

 private:
  /// Spins until then; -1 if that takes more than `most`.
  int spins_until(std::uint32_t wanted, int most) const;
  void sleep_until(std::uint32_t wanted);

  std::atomic<std::uint32_t> value_{0}, sleepers_{0};
};

}  // namespace gradsync
