#include "support/stop_signals.h"

#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace gradsync;

TEST_CASE("signals that several threads handle at the same time are all counted") {
  constexpr int kThreads = 4, kEach = 20'000;
  const StopSignals signals({SIGUSR1, SIGTERM});
  CHECK(signals.count() == 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([i] {
      // `raise` returns when this thread has handled it.
      for (int n = 0; n < kEach; ++n)
        raise(i % 2 == 0 ? SIGUSR1 : SIGTERM);
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(signals.count() == kThreads * kEach);
  CHECK((signals.received() == SIGUSR1 || signals.received() == SIGTERM));
}
