#pragma once

#include <signal.h>

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

}  // namespace gradsync
