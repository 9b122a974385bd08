#include "comm/deadline_guard.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include "base/process.h"
#include "stats/clock.h"

namespace gradsync {

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// Between the reports of two ranks, and at most: Open MPI's launcher sends the others SIGCONT at
/// once and SIGTERM a second later.
constexpr double kTurn_s = 1.5, kLastTurn_s = 6;
/// How much earlier than here the limit may end on another rank.
constexpr double kOthersMayEnd_s = 1;

}  // namespace

DeadlineGuard::DeadlineGuard(std::string program, Error error, double limit_s, int rank)
    : program_(std::move(program)),
      error_(std::move(error)),
      thread_([=, this] { watch(limit_s, std::min(kTurn_s * rank, kLastTurn_s)); }) {}

DeadlineGuard::~DeadlineGuard() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void DeadlineGuard::watch(double limit_s, double turn_s) {
  RunningTime ran(now_s());
  std::optional<DefaultSignal> term;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTick, [&] { return over_; })) {
    const double ran_s = ran.advance_to(now_s());
    if (ran_s > limit_s - kOthersMayEnd_s && !term) term.emplace(SIGTERM);
    if (ran_s <= limit_s + turn_s) continue;
    print_error(program_, error_);
    std::fflush(stderr);
    ::_exit(error_.exit_code());
  }
}

}  // namespace gradsync
