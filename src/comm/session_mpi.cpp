#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/launcher.h"
#include "comm/deadline_guard.h"
#include "comm/session.h"

namespace gradsync {

namespace {

constexpr auto kAbortGrace = std::chrono::seconds(2);

std::string processor_name() {
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_Get_processor_name(name, &length);
  return std::string(name, static_cast<std::size_t>(length));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

Error no_start(const Launcher& launcher, const WatchLimits& limits) {
  return Error(
      ExitCode::kEnvironment,
      fmt::format("rank {} ({}): MPI has not started in {:g} s, with {} ranks by {}", launcher.rank,
                  host_name(), limits.start_s, launcher.ranks,
                  launcher.name.empty() ? "no launcher" : launcher.name),
      "check for hosts that do not answer, stopped processes and firewalls; try mpirun -n "
      "2 "
      "hostname, then srun --mpi=pmix, and with Open MPI mpirun --mca btl self,tcp" +
          (limits.start_option.empty() ? std::string()
                                       : fmt::format("; {} sets the limit", limits.start_option)));
}

Error no_end(const std::string& place, double limit_s) {
  return Error(ExitCode::kHang,
               fmt::format("{}: MPI has not ended in {:g} s (MPI_Finalize)", place, limit_s),
               "what the run has written is complete; look at the hosts of its ranks");
}

}  // namespace

Session::Session(int argc, char** argv, std::string program, const WatchLimits& limits)
    : program_(std::move(program)), limits_(limits) {
  const Launcher launcher = find_launcher();
  const DeadlineGuard guard(program_, no_start(launcher, limits), limits.start_s, launcher.rank);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level_);
  MPI_Comm_dup(MPI_COMM_WORLD, &world_);
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &size_);
  MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_);
  MPI_Comm_rank(node_, &local_rank_);
  MPI_Comm_size(node_, &local_size_);
  host_ = processor_name();
  watchdog_ = std::make_unique<Watchdog>(*this, limits, node_,
                                         [this](const Error& error) { abort(error); });
}

Session::~Session() {
  watchdog_->meet_at_end();
  const DeadlineGuard guard(program_, no_end(place(), limits_.start_s), limits_.start_s, rank_);
  watchdog_.reset();
  MPI_Comm_free(&node_);
  MPI_Comm_free(&world_);
  MPI_Finalize();
}

void Session::require_sound_launch() const {
  if (thread_level_ < MPI_THREAD_SERIALIZED)
    throw Error(
        ExitCode::kEnvironment,
        fmt::format(
            "{} allows calls from one thread only, and gradsync communicates from a second one",
            mpi_library_version()),
        "use an MPI built with thread support (ompi_info: Thread support: posix); with Cray MPICH "
        "export MPICH_MAX_THREAD_SAFETY=multiple");
  const Launcher launcher = find_launcher();
  if (size_ > 1 || launcher.ranks <= 1) return;
  throw Error(
      ExitCode::kEnvironment,
      fmt::format("this is rank 0 of 1, but the job has {} tasks ({}): it was started without an "
                  "MPI launcher, or with one of another MPI than the {} linked here",
                  launcher.ranks, launcher.ranks_from, mpi_library_version()),
      fmt::format("srun --mpi=pmix -n {0} {1} …   or   mpirun -n {0} {1} …", launcher.ranks,
                  program_));
}

void Session::together(const std::function<void()>& body) const {
  std::optional<Error> mine;
  try {
    body();
  } catch (...) {
    mine = current_error();
  }
  int failed = mine ? rank_ : size_;
  int first = size_;
  {
    const auto watched = control(CollectiveKind::kAllReduce, sizeof failed);
    MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, world_);
  }
  if (first == size_) return;
  if (first == rank_) abort(*mine);
  wait_for_abort();
}

void Session::abort(const Error& error) const {
  // One thread of this rank reports; another one that reports at the same time waits for the end.
  while (aborting_.exchange(true))
    std::this_thread::sleep_for(kAbortGrace);
  const std::string where = size_ > 1 ? place() + ": " : "";
  print_error(program_, Error(error.code(), where + error.what(), error.fix()));
  std::fflush(stderr);
  // MPI_Abort itself has been seen stuck; the job must end all the same.
  std::thread([code = error.exit_code()] {
    std::this_thread::sleep_for(kAbortGrace);
    _exit(code);
  }).detach();
  {
    const std::lock_guard lock(before_abort_mutex_);
    if (before_abort_) before_abort_();
  }
  MPI_Abort(MPI_COMM_WORLD, error.exit_code());
  _exit(error.exit_code());
}

void Session::before_abort(std::function<void()> end) const {
  const std::lock_guard lock(before_abort_mutex_);
  before_abort_ = std::move(end);
}

void Session::abort_on_error(const std::function<void()>& body) const {
  try {
    body();
  } catch (...) {
    abort(current_error());
  }
}

void Session::end_as_lost(const std::string& why) const {
  watchdog_->expire(why);
  wait_for_abort();
}

void Session::wait_for_abort() const {
  // The launcher ends ranks with TERM, which a run may have taken for a request to stop.
  std::signal(SIGTERM, SIG_DFL);
  const CollectiveScope watched(*watchdog_, CollectiveKind::kBarrier);
  for (;;)
    std::this_thread::sleep_for(kAbortGrace);
}

void Session::count(CollectiveKind kind, std::int64_t bytes, int root) const {
  ledger_.add(Traffic::kControl, link_bytes(kind, bytes, rank_, size_, root));
}

void Session::count_on_node(CollectiveKind kind, std::int64_t bytes) const {
  ledger_.add(Traffic::kControl, link_bytes(kind, bytes, local_rank_, local_size_, 0));
}

CollectiveScope Session::control(CollectiveKind kind, std::int64_t bytes, int root) const {
  count(kind, bytes, root);
  return {*watchdog_, kind};
}

CollectiveScope Session::control_on_node(CollectiveKind kind, std::int64_t bytes) const {
  count_on_node(kind, bytes);
  return {*watchdog_, kind};
}

std::string Session::place() const {
  return fmt::format("rank {} ({})", rank_, host_);
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  version.erase(std::min(version.find_first_of(",\n"), version.size()));
  // MPICH and Cray MPICH align a column with tabs or blanks.
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  std::replace_if(version.begin(), version.end(), is_blank, ' ');
  const auto both = [](char one, char next) { return one == ' ' && next == ' '; };
  version.erase(std::unique(version.begin(), version.end(), both), version.end());
  return version;
}

}  // namespace gradsync
