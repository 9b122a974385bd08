#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <mpi.h>

#include "base/error.h"
#include "comm/ledger.h"
#include "comm/watchdog.h"

namespace gradsync {

/// The MPI job this process is a rank of. One a process, owned by `main`: MPI is initialized when
/// it is made and finalized when it goes, after every communicator.
///
/// MPI errors are fatal (MPI's default handler, a choice: with returned errors Open MPI 4.1's
/// survivors hang). One thread talks to MPI at a time; only the watchdog may call it beside
/// another, hence MPI_THREAD_MULTIPLE is asked for.
class Session {
 public:
  /// Ends the process with kEnvironment if the other ranks do not come within limits.start_s.
  Session(int argc, char** argv, std::string program, const WatchLimits& limits = {});
  /// Waits for all ranks; ends the job with kHang if one does not come.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool root() const { return rank_ == 0; }
  /// Rank among the ranks of this node, and how many those are.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  MPI_Comm world() const { return world_; }
  MPI_Comm node() const { return node_; }
  bool threads_may_call() const { return thread_level_ == MPI_THREAD_MULTIPLE; }
  /// Watches every wait for other ranks, from MPI_Init to MPI_Finalize.
  Watchdog& watchdog() const { return *watchdog_; }

  /// Throws Error kEnvironment when MPI allows no thread but the first to call it, and when this is
  /// a job of one rank that was meant to be larger: no MPI launcher, but SLURM_NTASKS > 1, or a
  /// launcher whose MPI is not the one linked.
  void require_sound_launch() const;

  /// Runs `body` on every rank; if it throws on any, the lowest such rank reports for all and the
  /// job ends with that error's code. Collective.
  void together(const std::function<void()>& body) const;

  /// Ends the job on all ranks with one message: that of this rank. Never returns.
  [[noreturn]] void abort(const Error& error) const;

  /// Called once by this rank's `abort`, from whichever thread, before the job ends: for what other
  /// ranks, or a device, would otherwise be left waiting in. It must not wait for other ranks.
  /// Given another one while it is called, this waits.
  void before_abort(std::function<void()> end) const;

  /// Runs `body`; an error of this rank ends the job before `body` is left, while the objects still
  /// stand whose ends are collective.
  void abort_on_error(const std::function<void()>& body) const;

  /// For a collective that can never end: the watchdog reports `why` with the ranks that are
  /// missing, on one rank. Never returns.
  [[noreturn]] void end_as_lost(const std::string& why) const;

  /// Waits, watched, while another rank reports an error and ends the job. Never returns.
  [[noreturn]] void wait_for_abort() const;

  /// What this rank has sent and received so far. The callers of MPI count, through a
  /// const session, too. Not counted: what MPI sends to start and to make communicators, and the
  /// measurements of --calibrate.
  Ledger& ledger() const { return ledger_; }
  /// Adds a collective of all ranks, or of those of this node, as control.
  void count(CollectiveKind kind, std::int64_t bytes, int root = 0) const;
  void count_on_node(CollectiveKind kind, std::int64_t bytes) const;
  /// The same, and the wait for it is watched while the result lives.
  [[nodiscard]] CollectiveScope control(CollectiveKind kind, std::int64_t bytes,
                                        int root = 0) const;
  [[nodiscard]] CollectiveScope control_on_node(CollectiveKind kind, std::int64_t bytes) const;

  /// "rank 2 (node07)".
  std::string place() const;

 private:
  std::string program_;
  MPI_Comm world_ = MPI_COMM_NULL, node_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, thread_level_ = 0;
  std::string host_;
  WatchLimits limits_;
  std::unique_ptr<Watchdog> watchdog_;
  mutable std::mutex before_abort_mutex_;  ///< the watchdog's thread may abort at any time
  mutable std::function<void()> before_abort_;
  mutable std::atomic<bool> aborting_{false};
  mutable Ledger ledger_;
};

/// "Open MPI v4.1.4 …": the library that is loaded, first line.
std::string mpi_library_version();

}  // namespace gradsync
