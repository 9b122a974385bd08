#include "train/stop_request.h"

namespace gradsync {

std::string stop_text(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      break;
    case StopReason::kTimeLimit:
      return "--time-limit";
    case StopReason::kUsr1:
      return "signal USR1";
    case StopReason::kTerm:
      return "signal TERM";
  }
  return "nothing";
}

StopRequest::StopRequest() : signals_({SIGUSR1, SIGTERM}) {}

StopReason StopRequest::reason(double needed_s) const {
  const int signal = signals_.received();
  if (signal != 0) return signal == SIGUSR1 ? StopReason::kUsr1 : StopReason::kTerm;
  const bool late = time_limit_s_ > 0 && since_start_.elapsed_s() + needed_s > time_limit_s_;
  return late ? StopReason::kTimeLimit : StopReason::kNone;
}

}  // namespace gradsync
