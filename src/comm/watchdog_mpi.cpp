#include <utility>

#include "comm/hang_detector.h"
#include "comm/hang_report.h"
#include "comm/session.h"
#include "comm/watchdog.h"
#include "comm/watched_phases.h"

/// Called at every phase; defined only by the library that the fault tests preload
/// (tests/libraries/strike.cpp).
extern "C" void gradsync_enters(const char* phase) __attribute__((weak));

namespace gradsync {

namespace {

void tell_tests(std::string_view phase) {
  if (gradsync_enters) gradsync_enters(phase.data());
}

}  // namespace

Watchdog::Watchdog(const Session& session, const WatchLimits& limits, MPI_Comm node, End end)
    : session_(session),
      state_(std::make_unique<WatchState>(limits)),
      detector_(std::make_unique<HangDetector>(session, *state_, node, std::move(end))) {}

Watchdog::~Watchdog() = default;

void Watchdog::meet_at_end() {
  detector_->mine().activity = Activity::kFinished;
  const WatchdogTimeoutExtension extension(*this, WatchedPhase::kShutdown);
  const CollectiveScope watched(*this, CollectiveKind::kBarrier);
  MPI_Barrier(session_.world());
}

void Watchdog::set_timeout(double timeout_s) {
  state_->timeout_s = timeout_s;
}

double Watchdog::timeout_s() const {
  return state_->timeout_s;
}

double Watchdog::limit_s() const {
  return gradsync::limit_s(detector_->mine().phase, state_->limits(), 0);
}

void Watchdog::expire(const std::string& why) {
  if (!state_->never.exchange(true)) detector_->mine().explain(why);
}

void Watchdog::doing(Activity activity, std::int64_t iteration) {
  RankStatus& mine = detector_->mine();
  mine.activity.store(activity, std::memory_order_relaxed);
  mine.iteration.store(iteration, std::memory_order_relaxed);
  tell_tests(activity_name(activity));
}

void Watchdog::enter(CollectiveKind kind, std::int64_t iteration, bool counts) {
  ++state_->waits;
  if (state_->depth++ > 0) return;
  RankStatus& mine = detector_->mine();
  if (iteration >= 0) mine.iteration.store(iteration, std::memory_order_relaxed);
  if (counts) mine.sequence.fetch_add(1, std::memory_order_relaxed);
  mine.kind.store(static_cast<std::int32_t>(kind), std::memory_order_release);
  tell_tests("collective");
}

void Watchdog::leave() {
  ++state_->waits;
  if (--state_->depth == 0) detector_->mine().kind.store(-1, std::memory_order_release);
}

WatchedPhase Watchdog::begin_phase(WatchedPhase phase) {
  const WatchedPhase before = detector_->mine().phase.exchange(phase);
  ++state_->phases;
  tell_tests(phase_entry(phase).name);
  return before;
}

}  // namespace gradsync
