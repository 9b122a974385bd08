#include "sweep/stop_signals.h"

namespace gradsync {

namespace {

// A signal handler can reach nothing but a global.
volatile sig_atomic_t signals_received = 0;

void count(int) {
  signals_received = signals_received + 1;
}

}  // namespace

StopSignals::StopSignals() {
  signals_received = 0;
  struct sigaction action {};
  action.sa_handler = count;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);  // one at a time, so that none goes uncounted
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &before_[i], nullptr);
}

int StopSignals::received() const {
  return signals_received;
}

}  // namespace gradsync
