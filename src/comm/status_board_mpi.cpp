#include <unistd.h>

#include <fstream>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/process.h"
#include "comm/single_copy.h"
#include "comm/status_board.h"

namespace gradsync {

namespace {

/// Nodes exchange statuses only after a rank has waited for so long.
constexpr double kUneasy_s = 0.3;
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

bool StatusBoard::another_reports() const {
  for (std::size_t i = 0; i < statuses_.size(); ++i)
    if (i != mine_ && statuses_[i]->reports) return true;
  return false;
}

std::string StatusBoard::why() const {
  for (const RankStatus* status : statuses_)
    if (status->has_why) return status->why;
  return {};
}

}  // namespace gradsync
