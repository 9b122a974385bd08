#pragma once

#include <signal.h>

#include <csignal>
#include <utility>
#include <vector>

namespace gradsync {

/// While it lives, these signals are remembered instead of ending the program (those that were
/// ignored stay ignored, as under nohup). One at a time.
class StopSignals {
 public:
  explicit StopSignals(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came last, or 0.
  int received() const;
  /// How many have come.
  int count() const;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

/// While it lives, a signal does to this process what it does by default.
class DefaultSignal {
 public:
  explicit DefaultSignal(int signal) : signal_(signal) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal_, &action, &before_);
  }
  ~DefaultSignal() { sigaction(signal_, &before_, nullptr); }
  DefaultSignal(const DefaultSignal&) = delete;
  DefaultSignal& operator=(const DefaultSignal&) = delete;

 private:
  int signal_;
  struct sigaction before_ = {};
};

}  // namespace gradsync
