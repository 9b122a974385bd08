#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <limits>
#include <utility>

#include "comm/hang_detector.h"
#include "comm/session.h"
#include "stats/clock.h"

namespace gradsync {

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
  std::vector<std::string> hosts;
  for (const Name& name : all)
    hosts.emplace_back(name.data());
  return hosts;
}

bool any_expired(const std::vector<RankReport>& reports) {
  return std::any_of(reports.begin(), reports.end(),
                     [](const RankReport& report) { return report.expired && report.waits(); });
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
  if (glance.uneasy || messages_.told_expired()) messages_.receive(running_s);
  const bool asked =
      glance.uneasy && messages_.heard(running_s, kFreshSeldom_s, std::numeric_limits<int>::max());
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

/// Whether the launcher is about to end this process: it wakes a stopped one up for that, and the
/// rank that reported is gone by then.
bool HangDetector::reported_by_another(double running_s) {
  if (!board_.another_reports())
    return messages_.heard(running_s, kReporterLost_s, session_.rank());
  if (reported_s_ < 0) reported_s_ = running_s;
  return running_s - reported_s_ <= kReporterLost_s;
}

/// On the rank that reports for its node, while ranks may be missing.
void HangDetector::judge(const std::vector<RankReport>& node, double running_s) {
  const auto all = all_reports(node, running_s);
  messages_.tell(node, any_expired(node), lasts_long(running_s), running_s);
  if (!any_expired(all)) {
    expired_since_s_ = -1;
    return;
  }
  if (expired_since_s_ < 0) expired_since_s_ = running_s;
  const std::string why = board_.why();
  if (why.empty() && excused_by_disk(all, running_s)) return;
  const bool all_answer =
      std::all_of(all.begin(), all.end(), [](const RankReport& report) { return report.answers; });
  const double grace_s = state_.fixed.grace_s + (all_answer ? 0 : kSilentNodes_s);
  if (running_s - expired_since_s_ < grace_s) return;
  if (reported_by_another(running_s)) return;
  ended_ = true;
  mine().reports = true;
  end_(Error(ExitCode::kHang, hang_text(all, hosts_, why), hang_fix(all, hosts_, state_.limits())));
}

}  // namespace gradsync
