// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "base/error.h"
#include "base/function_ref.h"
#include "comm/collective_call.h"
#include "comm/ledger.h"
#include "comm/watchdog.h"
#include "record/run.h"

namespace gradsync {

template <typename T>
inline constexpr bool kIsSpan = false;
template <typename T, std::size_t kCount>
inline constexpr bool kIsSpan<std::span<T, kCount>> = true;

/// A value that travels between ranks as its bytes.
template <typename T>
concept ControlValue = std::is_trivially_copyable_v<T> && !kIsSpan<T>;

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

  /// Runs `body` on every rank; if it throws on any, the lowest such rank reports for all, and all
  /// leave MPI and end with that error's code. Collective.
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

  // Control values: what ranks exchange outside any timed section. All ranks of the session make
  // the same calls, with data of one size. Each call is watched and counted (as metrics for a sum,
  // else as control, or as ControlCategory says) and, but for texts of unknown length and meetings,
  // compared across the ranks like an exchange's collectives where there is one.

  /// Waits for all ranks.
  void meet() const;
  /// From rank 0.
  void broadcast(std::span<std::byte> bytes) const;
  template <ControlValue T>
  void broadcast(T& value) const {
    broadcast(std::as_writable_bytes(std::span(&value, 1)));
  }
  /// Broadcasts a std::string or a vector of any length, which the other ranks need not know.
  template <typename Range>
  requires ControlValue<typename Range::value_type> && requires(Range& range) { range.resize(1); }
  void broadcast(Range& values) const {
    auto count = static_cast<std::uint64_t>(values.size());
    broadcast(count);
    values.resize(static_cast<std::size_t>(count));
    broadcast(std::as_writable_bytes(std::span(values)));
  }
  /// Blocks of equal size in order of rank, on rank 0: `all` is used there only.
  void gather(std::span<const std::byte> one, std::span<std::byte> all) const;
  /// The rows of all ranks in order of rank, on rank 0; empty elsewhere. Equally many of each rank.
  template <ControlValue T, std::size_t kCount>
  std::vector<std::remove_const_t<T>> gather(std::span<T, kCount> rows) const {
    const auto ranks = static_cast<std::size_t>(root() ? size() : 0);
    std::vector<std::remove_const_t<T>> all(ranks * rows.size());
    gather(std::as_bytes(rows), std::as_writable_bytes(std::span(all)));
    return all;
  }
  template <ControlValue T>
  std::vector<T> gather(const T& row) const {
    return gather(std::span(&row, 1));
  }
  /// Texts of any length.
  std::vector<std::string> gather(const std::string& text) const;
  /// Over the ranks, of each value; in place.
  void sum(std::span<double> values) const;
  void max(std::span<double> values) const;
  double sum(double value) const {
    sum({&value, 1});
    return value;
  }
  double max(double value) const {
    max({&value, 1});
    return value;
  }
  /// Whether every rank gave the same value; all get the same answer.
  bool equal(std::uint64_t value) const;
  /// From one rank to another; `bytes` is used on these two only.
  void move(std::span<std::byte> bytes, int from, int to) const;
  /// Both ways between this rank and another one, which makes the same call; the other ranks need
  /// not. Not counted.
  void swap(int peer, std::span<const std::byte> out, std::span<std::byte> in) const;

  /// Broadcast and gather among the ranks of this node, from and to its first rank.
  template <ControlValue T>
  void broadcast_on_node(T& value) const {
    broadcast_on_node(std::as_writable_bytes(std::span(&value, 1)));
  }
  double sum_on_node(double value) const;
  /// The rows in order of local rank, on every rank of the node.
  template <ControlValue T>
  std::vector<T> gather_on_node(const T& row) const {
    std::vector<T> all(static_cast<std::size_t>(local_size_));
    gather_on_node(std::as_bytes(std::span(&row, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  /// Sets what control values pass through from now on: it is to run `body` once. Empty: nothing.
  /// Returns what they passed through until now.
  using ControlGate =
      std::function<void(const CollectiveCall& call, Traffic category, FunctionRef<void()> body)>;
  ControlGate set_control_gate(ControlGate gate) const;

  /// What this rank has sent and received so far. Callers of MPI in comm, transport and exchange
  /// count, through a const session, too. Not counted: what MPI sends to start and to make
  /// communicators.
  Ledger& ledger() const { return ledger_; }

  /// Ends MPI and this process in the middle of a job. Collective, but for a fault that tests
  /// request.
  [[noreturn]] void leave(int code) const;

  /// "rank 2 (node07)".
  std::string place() const;

 private:
  friend class ControlCategory;
  friend class BeforeLeaving;

  void begin_end() const;
  void report(const Error& error) const;
  void call_before_abort() const;

  void control(const CollectiveCall& call, Traffic category, FunctionRef<void()> body) const;
  void control_on_node(CollectiveKind kind, std::size_t bytes, FunctionRef<void()> body) const;
  void broadcast_on_node(std::span<std::byte> bytes) const;
  void gather_on_node(std::span<const std::byte> one, std::span<std::byte> all) const;

  std::string program_;
  MPI_Comm world_ = MPI_COMM_NULL, node_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, thread_level_ = 0;
  bool by_srun_ = false;
  std::string host_;
  WatchLimits limits_;
  mutable std::unique_ptr<Watchdog> watchdog_;  ///< null in a process that ends
  mutable std::mutex before_abort_mutex_;       ///< the watchdog's thread may abort at any time
  mutable std::function<void()> before_abort_, before_leaving_;
  mutable std::atomic<bool> aborting_{false};
  mutable Ledger ledger_;
  mutable ControlGate control_gate_;
  mutable Traffic control_category_ = Traffic::kControl;
};

/// While it lives, what counts as control is counted in another category.
class ControlCategory {
 public:
  ControlCategory(const Session& session, Traffic category)
      : session_(session), before_(session.control_category_) {
    session.control_category_ = category;
  }
  ~ControlCategory() { session_.control_category_ = before_; }
  ControlCategory(const ControlCategory&) = delete;
  ControlCategory& operator=(const ControlCategory&) = delete;

 private:
  const Session& session_;
  Traffic before_;
};

/// While it lives, `together` calls `end` before this rank leaves: for what is unlocked only by who
/// asks for it, since destructors do not run then.
class BeforeLeaving {
 public:
  BeforeLeaving(const Session& session, std::function<void()> end) : session_(session) {
    session.before_leaving_ = std::move(end);
  }
  ~BeforeLeaving() { session_.before_leaving_ = {}; }
  BeforeLeaving(const BeforeLeaving&) = delete;
  BeforeLeaving& operator=(const BeforeLeaving&) = delete;

 private:
  const Session& session_;
};

/// Ends the job with kRanksDisagree, naming both ranks and both values, unless every rank states
/// the same values under the same names. Collective.
void require_agreement(const Session& session, const std::vector<NamedText>& stated);

/// Likewise unless the first ranks of all nodes make the same text, of at most 64 bytes, from what
/// a node reads once. What `make` throws ends the job. Collective.
void require_same_on_nodes(const Session& session, const std::string& what,
                           FunctionRef<std::string()> make);

/// What equal_on_all sends.
inline constexpr std::int64_t kEqualOnAllBytes = 2 * sizeof(std::uint64_t);
/// Whether every rank of `comm` gave the same value; all get the same answer. Neither watched nor
/// counted. Collective.
bool equal_on_all(MPI_Comm comm, std::uint64_t value);

/// MPI counts in int: what is longer travels in pieces of at most this.
constexpr std::size_t kPiece_bytes = std::size_t{1} << 30;

/// MPI_Bcast of any length. Collective over `comm`.
void broadcast_bytes(std::span<std::byte> data, int root, MPI_Comm comm,
                     std::size_t piece_bytes = kPiece_bytes);

/// Moves `data`, of any length, from rank `from` to rank `to`; both call it.
void move_bytes(std::span<std::byte> data, int from, int to, MPI_Comm comm,
                std::size_t piece_bytes = kPiece_bytes);

/// "Open MPI v4.1.4 …": the library that is loaded, first line.
std::string mpi_library_version();

}  // namespace gradsync
