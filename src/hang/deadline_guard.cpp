#include "hang/deadline_guard.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "hang/running_time.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// Between the reports of two ranks, and at most: a launcher ends the others in less, also on a
/// machine with four times as many processes as cores.
constexpr double kTurn_s = 0.5, kLastTurn_s = 4;

}  // namespace

DeadlineGuard::DeadlineGuard(std::string program, Error error, double limit_s, int rank)
    : program_(std::move(program)),
      error_(std::move(error)),
      thread_([this, end_s = limit_s + std::min(kTurn_s * rank, kLastTurn_s)] { watch(end_s); }) {}

DeadlineGuard::~DeadlineGuard() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void DeadlineGuard::watch(double limit_s) {
  RunningTime ran(now_s());
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTick, [&] { return over_; })) {
    if (ran.advance_to(now_s()) <= limit_s) continue;
    print_error(program_, error_);
    std::fflush(stderr);
    ::_exit(error_.exit_code());
  }
}

}  // namespace gradsync
