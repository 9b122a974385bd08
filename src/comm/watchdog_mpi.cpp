// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>

#include "base/process.h"
#include "base/ranges.h"
#include "comm/hang_detector.h"
#include "comm/hang_report.h"
#include "comm/places.h"
#include "comm/session.h"
#include "comm/shared_window.h"
#include "comm/watchdog.h"
#include "comm/watched_phases.h"
#include "stats/clock.h"

/// Called at every phase; defined only by the library that the fault tests preload
/// (tests/libraries/strike.cpp).
extern "C" void gradsync_enters(const char* phase) __attribute__((weak));

namespace gradsync {

namespace {

/// Nodes exchange statuses only after a rank has waited for so long.
constexpr double kUneasy_s = 0.3;
/// A rank that has been in no collective for so long listens to the other nodes, which may wait for
/// it.
constexpr double kBusy_s = 1;
/// A watchdog that has not ticked for so long does not run (a frozen control group, a debugger).
constexpr double kSilent_s = 2.5;

/// State of a process that has a number of another container: its ticks show whether it runs.
constexpr char kUnknownState = '?';

/// State letter of /proc/PID/stat ('T' stopped, 'Z' dead), or 0 if the process is gone.
char process_state(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const auto after_name = line.rfind(')');
  return after_name + 2 < line.size() ? line[after_name + 2] : 0;
}

}  // namespace

StatusBoard::StatusBoard(MPI_Comm node, std::vector<int> world_ranks)
    : window_(node, sizeof(RankStatus), alignof(RankStatus)),
      world_ranks_(std::move(world_ranks)),
      seen_(world_ranks_.size()) {
  int local = 0;
  MPI_Comm_rank(node, &local);
  mine_ = static_cast<std::size_t>(local);
  for (std::byte* part : window_.parts())
    statuses_.push_back(reinterpret_cast<RankStatus*>(part));
  RankStatus& status = *new (statuses_[mine_]) RankStatus;
  status.pid = getpid();
  status.pid_namespace = namespace_of("pid");
  status.cma_namespace = cma_namespace();
  MPI_Barrier(node);
}

StatusBoard::Glance StatusBoard::glance(double running_s) {
  Glance glance;
  for (std::size_t i = 0; i < statuses_.size(); ++i) {
    const RankStatus& status = *statuses_[i];
    if (const std::int64_t ticks = status.ticks; ticks != seen_[i].ticks)
      seen_[i] = {ticks, running_s};
    const bool writes = phase_entry(status.phase).rule == LimitRule::kInputOutput;
    glance.expired |= status.expired;
    glance.uneasy |=
        status.expired || status.waited_s > kUneasy_s || (writes && status.phase_s > kUneasy_s);
  }
  return glance;
}

std::vector<RankReport> StatusBoard::reports(double running_s) const {
  std::vector<RankReport> all;
  for (std::size_t i = 0; i < statuses_.size(); ++i) {
    const RankStatus& status = *statuses_[i];
    RankReport report;
    report.rank = world_ranks_[i];
    report.activity = status.activity;
    report.phase = status.phase;
    report.kind = status.kind;
    report.iteration = status.iteration;
    report.sequence = status.sequence;
    report.waited_s = status.waited_s;
    report.limit_s = status.limit_s;
    report.phase_s = status.phase_s;
    report.expired = status.expired;
    report.answers = true;
    report.reports = status.reports;
    report.cma_namespace = status.cma_namespace;
    report.process = status.pid_namespace == statuses_[mine_]->pid_namespace
                         ? process_state(status.pid)
                         : kUnknownState;
    if (i != mine_ && status.watched && running_s - seen_[i].at_s > kSilent_s && report.runs())
      report.process = 'F';
    all.push_back(report);
  }
  return all;
}

bool StatusBoard::leads(const std::vector<RankReport>& reports) const {
  for (std::size_t i = 0; i < mine_; ++i)
    if (reports[i].runs() && statuses_[i]->watched) return false;
  return true;
}

std::string StatusBoard::why() const {
  for (const RankStatus* status : statuses_)
    if (status->has_why) return status->why;
  return {};
}

namespace {

constexpr int kTag = 86;
/// A message begins with the text of RankStatus::why.
constexpr std::size_t kWhyBytes = sizeof(RankStatus::why);
constexpr double kTellEvery_s = 0.2;
/// In the long run (a slow disk): ranks that do not listen keep what they get.
constexpr double kTellSeldom_s = 2;

static_assert(std::is_trivially_copyable_v<RankReport>, "travels as bytes");

bool any_expired(const std::vector<RankReport>& reports) {
  return std::ranges::any_of(
      reports, [](const RankReport& report) { return report.expired && report.waits(); });
}

}  // namespace

NodeMessages::NodeMessages(const Session& session, const std::vector<int>& node_ranks)
    : session_(session) {
  MPI_Comm_dup(session.world(), &comm_);
  for (int rank = 0; rank < session.size(); ++rank)
    if (!contains(node_ranks, rank)) others_.push_back(rank);
}

NodeMessages::~NodeMessages() {
  receive(0);
  forget_sent();
  // Messages that are still under way: MPI may read and write their bytes, so none is ever freed.
  for (std::list<Moving>* left : {&sent_, &arriving_})
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory it may as well end here
    if (!left->empty()) new std::list<Moving>(std::move(*left));
  MPI_Comm_free(&comm_);
}

/// A rank that leaves too early may have left MPI.
bool NodeMessages::possible() const {
  int over = 0;
  MPI_Finalized(&over);
  return over == 0 && !others_.empty() && session_.threads_may_call();
}

void NodeMessages::receive(double running_s) {
  if (!possible()) return;
  for (;;) {
    int arrived = 0;
    MPI_Message announced;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &arrived, &announced, &status);
    if (!arrived) break;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Moving& moving = arriving_.emplace_back();
    moving.rank = status.MPI_SOURCE;
    moving.bytes.resize(static_cast<std::size_t>(bytes));
    MPI_Imrecv(moving.bytes.data(), bytes, MPI_BYTE, &announced, &moving.request);
  }
  arriving_.remove_if([&](Moving& moving) {
    if (!has_moved(moving)) return false;
    Told& told = told_[moving.rank] = {running_s, moving.bytes.data(), {}};
    told.reports.resize((moving.bytes.size() - kWhyBytes) / sizeof(RankReport));
    std::memcpy(told.reports.data(), moving.bytes.data() + kWhyBytes,
                told.reports.size() * sizeof(RankReport));
    return true;
  });
}

void NodeMessages::tell(const std::vector<RankReport>& node, const std::string& why, bool expired,
                        bool seldom, double running_s) {
  if (!possible()) return;
  forget_sent();
  const double every_s = seldom ? kTellSeldom_s : kTellEvery_s;
  if (expired == told_expired_ && told_at_s_ >= 0 && running_s - told_at_s_ < every_s) return;
  told_expired_ = expired;
  told_at_s_ = running_s;
  std::vector<char> bytes(kWhyBytes + node.size() * sizeof(RankReport));
  why.copy(bytes.data(), kWhyBytes - 1);
  std::memcpy(bytes.data() + kWhyBytes, node.data(), node.size() * sizeof(RankReport));
  for (const int rank : others_) {
    Moving& moving = sent_.emplace_back(Moving{rank, bytes, MPI_REQUEST_NULL});
    MPI_Isend(moving.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, rank, kTag, comm_,
              &moving.request);
  }
}

bool NodeMessages::heard(double running_s, double age_s, int below) const {
  return std::ranges::any_of(told_, [&](const auto& entry) {
    return entry.first < below && running_s - entry.second.at_s < age_s;
  });
}

bool NodeMessages::asks(double running_s, double age_s) const {
  return std::ranges::any_of(told_, [&](const auto& entry) {
    return running_s - entry.second.at_s < age_s && any_expired(entry.second.reports);
  });
}

std::string NodeMessages::why(double running_s, double age_s) const {
  for (const auto& [speaker, told] : told_)
    if (running_s - told.at_s < age_s && !told.why.empty()) return told.why;
  return {};
}

void NodeMessages::copy_to(std::vector<RankReport>& all, double running_s, double age_s) const {
  for (const auto& [speaker, told] : told_)
    if (running_s - told.at_s < age_s)
      for (const RankReport& report : told.reports)
        all.at(static_cast<std::size_t>(report.rank)) = report;
}

bool NodeMessages::has_moved(Moving& moving) {
  int done = 0;
  MPI_Test(&moving.request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

void NodeMessages::forget_sent() {
  sent_.remove_if(has_moved);
}

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// How old what another node told may be: at first, and when it has been going on for long.
constexpr double kFresh_s = 1, kFreshSeldom_s = 3;
/// A speaker that has told something within this time will report, and the job of a rank that has
/// reported ends within it; and from then it lasts long.
constexpr double kReporterLost_s = 3.5;
/// How much longer nodes that have not answered are waited for.
constexpr double kSilentNodes_s = 0.3;
constexpr std::size_t kHostBytes = 64;

std::vector<int> ranks_in(const Session& session, MPI_Comm node) {
  int size = 1;
  MPI_Comm_size(node, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  const int mine = session.rank();
  MPI_Allgather(&mine, 1, MPI_INT, ranks.data(), 1, MPI_INT, node);
  return ranks;
}

std::vector<std::string> hosts_of_ranks(const Session& session) {
  using Name = std::array<char, kHostBytes>;
  Name mine{};
  session.host().copy(mine.data(), mine.size() - 1);
  std::vector<Name> all(static_cast<std::size_t>(session.size()));
  MPI_Allgather(mine.data(), kHostBytes, MPI_CHAR, all.data(), kHostBytes, MPI_CHAR,
                session.world());
  return each(all, [](const Name& name) { return std::string(name.data()); });
}

}  // namespace

HangDetector::HangDetector(const Session& session, const WatchState& state, MPI_Comm node,
                           Watchdog::End end)
    : session_(session),
      state_(state),
      end_(std::move(end)),
      node_ranks_(ranks_in(session, node)),
      hosts_(hosts_of_ranks(session)),
      board_(node, node_ranks_),
      messages_(session, node_ranks_),
      ran_(now_s()),
      thread_([this] { watch(); }) {}

HangDetector::~HangDetector() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

void HangDetector::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kTick, [this] { return stopping_; })) {
    lock.unlock();
    if (!ended_) look();
    lock.lock();
  }
  mine().watched = false;
}

void HangDetector::look() {
  const double running_s = ran_.advance_to(now_s());
  update_own(running_s);
  const StatusBoard::Glance glance = board_.glance(running_s);
  const bool listens = glance.uneasy || running_s - work_begin_s_ > kBusy_s;
  if (listens || messages_.told_expired()) messages_.receive(running_s);
  const bool asked = listens && messages_.asks(running_s, kFreshSeldom_s);
  if (!glance.expired && !messages_.told_expired() && !asked) {
    expired_since_s_ = -1;
    return;
  }
  const auto node = board_.reports(running_s);
  if (board_.leads(node)) judge(node, running_s);
}

/// A wait counts from the first look that sees it, so that a pause before that look is no wait.
void HangDetector::update_own(double running_s) {
  RankStatus& status = mine();
  status.ticks.fetch_add(1, std::memory_order_relaxed);
  if (const std::int64_t phase = state_.phases; phase != phase_seen_) {
    phase_seen_ = phase;
    phase_begin_s_ = work_begin_s_ = running_s;
  }
  const bool inside = status.kind.load(std::memory_order_acquire) >= 0;
  if (const std::int64_t wait = state_.waits; wait != wait_seen_ || !inside) {
    wait_seen_ = wait;
    wait_begin_s_ = running_s;
    work_s_ = running_s - work_begin_s_;
  }
  if (inside) work_begin_s_ = running_s;
  const double waited_s = running_s - wait_begin_s_;
  const double limit = limit_s(status.phase, state_.limits(), work_s_);
  const bool expired = inside && (state_.never || waited_s > limit);
  status.phase_s = running_s - phase_begin_s_;
  status.waited_s = inside ? waited_s : 0;
  status.limit_s = limit;
  status.expired = expired;
  // The end of the job must end this rank at once, although a run takes TERM for a request to stop.
  if (expired && !term_) term_.emplace(SIGTERM);
  if (!expired) term_.reset();
}

bool HangDetector::lasts_long(double running_s) const {
  return expired_since_s_ >= 0 && running_s - expired_since_s_ > kReporterLost_s;
}

std::vector<RankReport> HangDetector::all_reports(const std::vector<RankReport>& node,
                                                  double running_s) const {
  if (!session_.threads_may_call()) return node;
  std::vector<RankReport> all(static_cast<std::size_t>(session_.size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    all[rank].rank = static_cast<std::int32_t>(rank);
  messages_.copy_to(all, running_s, lasts_long(running_s) ? kFreshSeldom_s : kFresh_s);
  for (const RankReport& report : node)
    all[static_cast<std::size_t>(report.rank)] = report;
  return all;
}

bool HangDetector::excused_by_disk(const std::vector<RankReport>& all, double running_s) {
  const WatchLimits limits = state_.limits();
  const DiskWait wait = disk_wait(all, sort_ranks(all), limits);
  if (wait == DiskWait::kInLimit) disk_until_s_ = running_s;
  return wait != DiskWait::kTooLong && running_s - disk_until_s_ <= limits.timeout_s;
}

/// Whether the launcher is about to end this process: a rank has reported, also one that is gone
/// since, or the launcher has sent TERM, which this run took for a request to stop.
bool HangDetector::is_being_ended(const std::vector<RankReport>& all, double running_s) {
  const bool reported =
      std::ranges::any_of(all, [](const RankReport& report) { return report.reports; });
  if (ending_since_s_ < 0 && (reported || stop_signal_received() == SIGTERM))
    ending_since_s_ = running_s;
  if (ending_since_s_ >= 0) return running_s - ending_since_s_ <= kReporterLost_s;
  return messages_.heard(running_s, kReporterLost_s, session_.rank());
}

/// On the rank that reports for its node, while ranks may be missing.
void HangDetector::judge(const std::vector<RankReport>& node, double running_s) {
  const auto all = all_reports(node, running_s);
  std::string why = board_.why();
  messages_.tell(node, why, any_expired(node), lasts_long(running_s), running_s);
  if (!any_expired(all)) {
    expired_since_s_ = -1;
    return;
  }
  if (expired_since_s_ < 0) expired_since_s_ = running_s;
  if (why.empty()) why = messages_.why(running_s, kFreshSeldom_s);
  if (why.empty() && excused_by_disk(all, running_s)) return;
  const bool all_answer =
      std::ranges::all_of(all, [](const RankReport& report) { return report.answers; });
  const double grace_s = state_.fixed.grace_s + (all_answer ? 0 : kSilentNodes_s);
  if (running_s - expired_since_s_ < grace_s) return;
  if (is_being_ended(all, running_s)) return;
  ended_ = true;
  mine().reports = true;
  end_(Error(ExitCode::kHang, hang_text(all, hosts_, why), hang_fix(all, hosts_, state_.limits())));
}

namespace {

/// Collectives that this thread is in, inside each other.
thread_local int depth_of_thread = 0;

void tell_tests(std::string_view phase) {
  if (gradsync_enters) gradsync_enters(phase.data());
}

}  // namespace

Watchdog::Watchdog(const Session& session, const WatchLimits& limits, MPI_Comm node, End end)
    : session_(session),
      state_(std::make_unique<WatchState>(limits)),
      detector_(std::make_unique<HangDetector>(
          session, *state_,
          has_room(node, sizeof(RankStatus) + alignof(RankStatus)) ? node : MPI_COMM_SELF,
          std::move(end))) {}

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

double Watchdog::limit_s() const {
  return gradsync::limit_s(detector_->mine().phase, state_->limits(), 0);
}

void Watchdog::expire(const std::string& why) {
  if (!state_->never.exchange(true)) detector_->mine().explain(why);
}

void Watchdog::reporting() {
  detector_->mine().reports = true;
}

void Watchdog::doing(Activity activity, std::int64_t iteration) {
  RankStatus& mine = detector_->mine();
  mine.activity.store(activity, std::memory_order_relaxed);
  mine.iteration.store(iteration, std::memory_order_relaxed);
  if (state_->launches.load(std::memory_order_relaxed)) begin_wait_in_launch(activity);
  tell_tests(activity_name(activity));
}

/// A wait is counted from the first look that sees it (HangDetector::update_own).
void Watchdog::begin_wait_in_launch(Activity activity) {
  const bool counts = activity != Activity::kData || state_->launches_data;
  ++state_->waits;
  if (state_->depth == 0) detector_->mine().kind = counts ? kLaunch : -1;
}

void Watchdog::enter(CollectiveKind kind, std::int64_t iteration, bool counts) {
  ++state_->waits;
  const bool first = state_->depth++ == 0;
  // What another thread is in says nothing of this one: ranks would count differently by chance.
  if (depth_of_thread++ > 0 || (!first && !counts)) return;
  RankStatus& mine = detector_->mine();
  if (iteration >= 0) mine.iteration.store(iteration, std::memory_order_relaxed);
  if (counts) mine.sequence.fetch_add(1, std::memory_order_relaxed);
  mine.kind.store(static_cast<std::int32_t>(kind), std::memory_order_release);
  tell_tests("collective");
}

void Watchdog::leave() {
  --depth_of_thread;
  ++state_->waits;
  if (--state_->depth == 0)
    detector_->mine().kind.store(state_->launches ? kLaunch : -1, std::memory_order_release);
}

LaunchScope::LaunchScope(Watchdog* watchdog, bool in_data) : watchdog_(watchdog) {
  if (!watchdog_) return;
  watchdog_->state_->launches_data = in_data;
  watchdog_->state_->launches = true;
}

LaunchScope::~LaunchScope() {
  if (!watchdog_) return;
  watchdog_->state_->launches = false;
  ++watchdog_->state_->waits;
  watchdog_->detector_->mine().kind = -1;
}

WatchedPhase Watchdog::begin_phase(WatchedPhase phase) {
  const WatchedPhase before = detector_->mine().phase.exchange(phase);
  ++state_->phases;
  tell_tests(phase_entry(phase).name);
  return before;
}

}  // namespace gradsync
