#pragma once

#include <signal.h>

#include <array>

namespace gradsync {

/// While it lives, SIGINT, SIGTERM, SIGHUP and SIGUSR1 (which batch systems send ahead of a time
/// limit) are counted instead of ending the program; those that were ignored stay ignored, as under
/// nohup. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// How many of the signals have come.
  int received() const;

 private:
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::array<struct sigaction, 4> before_{};
};

}  // namespace gradsync
