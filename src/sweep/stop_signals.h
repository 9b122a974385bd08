#pragma once

#include <signal.h>

#include <array>

namespace gradsync {

/// While it lives, SIGINT, SIGTERM and SIGHUP are remembered instead of ending the program (those
/// that were ignored stay ignored, as under nohup). One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// One of the signals has come.
  bool received() const;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 3> before_{};
};

}  // namespace gradsync
