#include "step/inject_fault.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <thread>

namespace gradsync {

void inject_fault(FaultKind kind, Exchange& exchange, GradientGuard& guard,
                  std::int64_t iteration) {
  switch (kind) {
    case FaultKind::kNone:
      break;
    case FaultKind::kNan:
      guard.poison_next();
      break;
    case FaultKind::kKill:
      std::raise(SIGKILL);
      break;
    case FaultKind::kStop:
      std::raise(SIGSTOP);
      break;
    case FaultKind::kLeave:
      exchange.watchdog().doing(Activity::kFinished, iteration);
      MPI_Finalize();
      std::_Exit(0);
    case FaultKind::kSkip:
      exchange.log().inject(CollectiveFault::kSkip);
      break;
    case FaultKind::kShort:
      exchange.log().inject(CollectiveFault::kShort);
      break;
    case FaultKind::kOtherType:
      exchange.log().inject(CollectiveFault::kOtherType);
      break;
    case FaultKind::kOtherRoot:
      exchange.log().inject(CollectiveFault::kOtherRoot);
      break;
    case FaultKind::kOutOfMemory:
      throw std::bad_alloc();
    case FaultKind::kUsr1:
      std::raise(SIGUSR1);
      break;
    case FaultKind::kTerm:
      std::raise(SIGTERM);
      break;
    case FaultKind::kDelay:
      std::this_thread::sleep_for(std::chrono::duration<double>(kDelay_s));
      break;
  }
}

}  // namespace gradsync
