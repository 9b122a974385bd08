#include "base/stop_signals.h"

#include <atomic>

namespace gradsync {

namespace {

// A signal handler can reach nothing but a global. Threads may handle signals at the same time.
std::atomic<int> signal_received{0}, signals_counted{0};
static_assert(std::atomic<int>::is_always_lock_free, "or a handler could wait for itself");

void remember(int signal) {
  signal_received = signal;
  ++signals_counted;
}

}  // namespace

StopSignals::StopSignals(const std::vector<int>& signals) {
  signal_received = 0;
  signals_counted = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const int signal : signals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, before);
  }
}

StopSignals::~StopSignals() {
  for (const auto& [signal, before] : before_)
    sigaction(signal, &before, nullptr);
}

int StopSignals::received() const {
  return signal_received;
}

int StopSignals::count() const {
  return signals_counted;
}

}  // namespace gradsync
