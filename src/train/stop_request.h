#pragma once

#include <cstdint>
#include <string>

#include "base/process.h"
#include "stats/clock.h"

namespace gradsync {

/// Why a rank requests a stop of the run.
enum class StopReason : std::int32_t { kNone, kTimeLimit, kUsr1, kTerm };

/// "signal USR1", "--time-limit".
std::string stop_text(StopReason reason);

/// Requests that this rank stops: signals USR1 and TERM, which are remembered from when it is made,
/// and a time limit, counted from then. One a process, made first of all in `main`.
class StopRequest {
 public:
  StopRequest();

  /// 0: none.
  void set_time_limit(double time_limit_s) { time_limit_s_ = time_limit_s; }

  /// Whether to stop now, if the run can stop next after `needed_s`.
  StopReason reason(double needed_s) const;

 private:
  StopSignals signals_;
  Stopwatch since_start_;
  double time_limit_s_ = 0;
};

}  // namespace gradsync
