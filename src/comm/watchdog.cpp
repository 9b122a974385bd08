#include "comm/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "record/run.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

constexpr std::array<std::string_view, 10> kActivityNames = {
    "start-up",  "waiting for data",   "forward",    "backward",   "synchronisation",
    "optimiser", "between iterations", "evaluation", "checkpoint", "after its last iteration"};
constexpr int kReporters = 4;
constexpr int kReportTag = 86;
constexpr double kPatience_s = 0.4;
constexpr std::size_t kMostRanksNamed = 8;

/// State letter of /proc/PID/stat ('T' stopped, 'Z' dead), or 0 if the process is gone.
char process_state(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const auto after_name = line.rfind(')');
  return after_name + 2 < line.size() ? line[after_name + 2] : 0;
}

}  // namespace

/// Lives in shared memory: only atomics, written by its own rank, read by every rank of the node.
struct alignas(64) Watchdog::Status {
  std::atomic<std::int64_t> iteration{0}, sequence{0};
  std::atomic<std::int32_t> activity{0}, kind{-1}, pid{0};
  std::atomic<double> entered_s{0};
};

struct Watchdog::Report {
  std::int32_t rank = 0, activity = 0, kind = -1, answered = 0;
  std::int64_t iteration = 0, sequence = 0;
  char process = 0;
  char host[63] = {};
};

Watchdog::Watchdog(const Session& session, double timeout_s)
    : session_(session), timeout_s_(timeout_s) {
  MPI_Comm_dup(session.world(), &comm_);
  void* base = nullptr;
  MPI_Win_allocate_shared(sizeof(Status), sizeof(Status), MPI_INFO_NULL, session.node(), &base,
                          &window_);
  mine_ = new (base) Status;
  mine_->pid = getpid();
  world_ranks_.resize(static_cast<std::size_t>(session.local_size()));
  const int rank = session.rank();
  MPI_Allgather(&rank, 1, MPI_INT, world_ranks_.data(), 1, MPI_INT, session.node());
  for (int local = 0; local < session.local_size(); ++local) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* address = nullptr;
    MPI_Win_shared_query(window_, local, &bytes, &unit, &address);
    board_.push_back(static_cast<Status*>(address));
  }
  MPI_Barrier(session.node());
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  // The others may still be on their way: leaving early is what this object has to tell of.
  doing(Activity::kFinished, mine_->iteration);
  enter(static_cast<std::int32_t>(CollectiveKind::kBarrier), mine_->sequence + 1, mine_->iteration);
  MPI_Barrier(session_.world());
  leave();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
  MPI_Win_free(&window_);
  MPI_Comm_free(&comm_);
}

void Watchdog::expire(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    why_ = why;
  }
  timeout_s_ = 0;
}

void Watchdog::doing(Activity activity, std::int64_t iteration) {
  mine_->activity.store(static_cast<std::int32_t>(activity), std::memory_order_relaxed);
  mine_->iteration.store(iteration, std::memory_order_relaxed);
}

void Watchdog::enter(std::int32_t kind, std::int64_t sequence, std::int64_t iteration) {
  mine_->iteration.store(iteration, std::memory_order_relaxed);
  mine_->sequence.store(sequence, std::memory_order_relaxed);
  mine_->entered_s.store(now_s(), std::memory_order_relaxed);
  mine_->kind.store(kind, std::memory_order_release);
}

void Watchdog::leave() {
  mine_->kind.store(-1, std::memory_order_release);
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    stop_.wait_for(lock, std::chrono::milliseconds(100));
    const bool inside = mine_->kind.load(std::memory_order_acquire) >= 0;
    if (!stopping_ && inside && now_s() - mine_->entered_s > timeout_s_) fire();
  }
}

Watchdog::Report Watchdog::own_report(const Status& status, int rank) const {
  Report report;
  report.rank = rank;
  report.activity = status.activity;
  report.kind = status.kind;
  report.iteration = status.iteration;
  report.sequence = status.sequence;
  report.process = process_state(status.pid);
  report.answered = rank == session_.rank();
  session_.host().copy(report.host, sizeof report.host - 1);
  return report;
}

std::vector<Watchdog::Report> Watchdog::node_reports() const {
  std::vector<Report> reports;
  for (std::size_t i = 0; i < board_.size(); ++i)
    reports.push_back(own_report(*board_[i], world_ranks_[i]));
  return reports;
}

void Watchdog::fire() {
  // Another rank's abort must end this one before its own patience does, at once, not when KILL
  // follows the TERM that a run may have taken for a request to stop.
  std::signal(SIGTERM, SIG_DFL);
  const auto here = node_reports();
  const int reporters = std::min(kReporters, session_.size());
  const int bytes = static_cast<int>(here.size() * sizeof(Report));
  if (session_.threads_may_call())
    for (int reporter = 0; reporter < reporters; ++reporter) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (reporter != session_.rank())
        MPI_Isend(here.data(), bytes, MPI_BYTE, reporter, kReportTag, comm_, &request);
    }
  if (session_.rank() >= reporters) session_.wait_for_abort();
  // The lowest living reporter's patience ends first, and its abort ends the others'.
  const auto reports = collect_reports(kPatience_s * (session_.rank() + 1));
  session_.abort(
      Error(ExitCode::kHang, describe(reports),
            "look at the host of the rank named; --timeout sets how long a collective may take"));
}

std::vector<Watchdog::Report> Watchdog::collect_reports(double patience_s) {
  std::map<int, Report> by_rank;
  const auto merge = [&](const std::vector<Report>& reports) {
    for (const Report& report : reports)
      if (report.answered || !by_rank.count(report.rank)) by_rank[report.rank] = report;
  };
  merge(node_reports());
  const double start_s = now_s();
  while (now_s() - start_s < patience_s && session_.threads_may_call()) {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kReportTag, comm_, &arrived, &status);
    if (!arrived) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<Report> reports(static_cast<std::size_t>(bytes) / sizeof(Report));
    MPI_Recv(reports.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kReportTag, comm_,
             MPI_STATUS_IGNORE);
    merge(reports);
  }
  std::vector<Report> reports;
  for (const auto& [rank, report] : by_rank)
    reports.push_back(report);
  return reports;
}

std::string Watchdog::describe(const std::vector<Report>& reports) const {
  const auto name_of = [](const Report& report) {
    std::string text =
        fmt::format("rank {} ({}): {}, iteration {}", report.rank, report.host,
                    kActivityNames[static_cast<std::size_t>(report.activity)], report.iteration);
    if (report.process == 'T') text += ", process stopped";
    if (report.process == 0 || report.process == 'Z') text += ", process gone";
    return text;
  };
  const std::int64_t sequence = mine_->sequence;
  const std::int32_t kind = mine_->kind;
  std::vector<std::string> missing, inside;
  for (const Report& report : reports) {
    // A rank that has left one out is as far with the next one, of another kind.
    const bool in = report.kind == kind && report.sequence == sequence && report.process != 'T';
    (in ? inside : missing).push_back(name_of(report));
  }
  const auto unheard = static_cast<std::size_t>(session_.size()) - reports.size();
  std::string text =
      fmt::format("hang: {} number {} of iteration {} has waited {:.1f} s (--timeout {:g} s); ",
                  kCollectiveNames[static_cast<std::size_t>(kind)], sequence,
                  mine_->iteration.load(), now_s() - mine_->entered_s, timeout_s_.load());
  missing.resize(std::min(missing.size(), kMostRanksNamed));
  inside.resize(std::min(inside.size(), kMostRanksNamed));
  text += missing.empty() ? "every rank that answers is in it"
                          : fmt::format("not in it: {}", fmt::join(missing, "; "));
  if (unheard > 0) text += fmt::format("; {} ranks do not answer", unheard);
  if (!inside.empty()) text += fmt::format(". In it: {}", fmt::join(inside, "; "));
  if (!why_.empty()) text += ". " + why_;
  return text;
}

}  // namespace gradsync
