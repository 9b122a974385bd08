#include "sweep/stop_signals.h"

namespace gradsync {

namespace {

// A signal handler can reach nothing but a global.
volatile sig_atomic_t signal_received = 0;

void remember(int) {
  signal_received = 1;
}

}  // namespace

StopSignals::StopSignals() {
  signal_received = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopSignals::received() const {
  return signal_received != 0;
}

}  // namespace gradsync
