#include "transport/shared_counter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace gradsync {

namespace {

constexpr int kYields = 500, kYieldsBesideCompute = 2;
/// A sleeping thread looks again after this long even without a wake.
constexpr long kLongestSleep_ns = 20'000'000;

void pause_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not FUTEX_PRIVATE: the ranks are processes of their own.
std::uint32_t* futex_word(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(std::uint32_t) &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

void SharedCounter::raise_to(std::uint32_t value) {
  // Sequentially consistent, and so is the sleeper's announcement: one of the two sees the other.
  value_.store(value);
  if (sleepers_.load() > 0)
    syscall(SYS_futex, futex_word(value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int SpinBudget::spins(Waiting waiting) const {
  return waiting == Waiting::kSpin ? spins_ : std::min(spins_, kBesideCompute);
}

void SpinBudget::paid(int spins) {
  if (2 * spins > spins_) spins_ = std::min(kMost, 2 * spins_);
}

void SpinBudget::wasted() {
  spins_ = std::max(kFewest, spins_ / 2);
}

void SharedCounter::wait_for(std::uint32_t wanted, Waiting waiting, SpinBudget& budget) {
  if (reached(wanted)) return;
  if (const int spins = spins_until(wanted, budget.spins(waiting)); spins >= 0)
    return budget.paid(spins);
  budget.wasted();
  const int yields = waiting == Waiting::kSpin ? kYields : kYieldsBesideCompute;
  for (int i = 0; i < yields; ++i) {
    sched_yield();
    if (reached(wanted)) return;
  }
  sleep_until(wanted);
}

int SharedCounter::spins_until(std::uint32_t wanted, int most) const {
  for (int spins = 0; spins < most; ++spins) {
    if (reached(wanted)) return spins;
    pause_a_little();
  }
  return -1;
}

void SharedCounter::sleep_until(std::uint32_t wanted) {
  const timespec longest{0, kLongestSleep_ns};
  sleepers_.fetch_add(1);
  for (std::uint32_t seen = value_.load(); static_cast<std::int32_t>(seen - wanted) < 0;
       seen = value_.load())
    syscall(SYS_futex, futex_word(value_), FUTEX_WAIT, seen, &longest, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace gradsync
