// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <limits>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/launcher.h"
#include "base/parse.h"
#include "comm/hang_report.h"
#include "comm/session.h"
#include "record/recorded_environment.h"

namespace gradsync {

namespace {

constexpr int kMoveTag = 75, kSwapTag = 69;

void in_pieces(std::span<std::byte> data, std::size_t piece_bytes,
               FunctionRef<void(std::byte*, int)> each) {
  while (!data.empty()) {
    const auto piece = data.first(std::min(data.size(), piece_bytes));
    each(piece.data(), static_cast<int>(piece.size()));
    data = data.subspan(piece.size());
  }
}

/// A call that ranks compare; bytes of the payload of one rank.
CollectiveCall byte_call(CollectiveKind kind, std::size_t bytes, int root) {
  CollectiveCall call;
  call.kind = kind;
  call.type = ValueType::kByte;
  call.root = root;
  call.count = static_cast<std::int64_t>(bytes);
  return call;
}

constexpr auto kAbortGrace = std::chrono::seconds(2), kLeaveGrace = std::chrono::seconds(10),
               kOthersLeave = std::chrono::seconds(1);

/// MPI_Abort and MPI_Finalize have been seen stuck; the job must end all the same.
void exit_after(std::chrono::seconds grace, int code) {
  std::thread([grace, code] {
    std::this_thread::sleep_for(grace);
    _exit(code);
  }).detach();
}

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
      fmt::format("rank {} ({}): MPI has not started in {:g} s, with {} by {}", launcher.rank,
                  host_name(), limits.start_s, count_text(launcher.ranks, "rank"),
                  launcher.name.empty() ? "no launcher" : launcher.name),
      "check for hosts that do not answer, stopped processes and firewalls; try mpirun -n 2 "
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
  by_srun_ = launcher.name == "srun";
  const DeadlineGuard guard(program_, no_start(launcher, limits), limits.start_s, launcher.rank);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level_);
  MPI_Comm_dup(MPI_COMM_WORLD, &world_);
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &size_);
  MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_);
  MPI_Comm_rank(node_, &local_rank_);
  MPI_Comm_size(node_, &local_size_);
  host_ = processor_name();
  abort_on_error([&] {
    watchdog_ = std::make_unique<Watchdog>(*this, limits, node_,
                                           [this](const Error& error) { abort(error); });
  });
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
  constexpr int kCodes = 256, kNobody = std::numeric_limits<int>::max();
  const int failed = mine ? rank_ * kCodes + mine->exit_code() : kNobody;
  int first = kNobody;
  {
    ledger_.add(Traffic::kControl,
                link_bytes(CollectiveKind::kAllReduce, sizeof failed, rank_, size_, 0));
    const CollectiveScope watched(*watchdog_, CollectiveKind::kAllReduce);
    MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, world_);
  }
  if (first == kNobody) return;
  // All ranks are here, so they can leave MPI, whose abort would print a text behind the message.
  begin_end();
  std::cout.flush();
  const bool reports = first / kCodes == rank_;
  if (reports) report(*mine);
  // srun ends the others at the first task that fails, and may give a code of theirs.
  const int code = reports || !by_srun_ ? first % kCodes : 0;
  exit_after(kLeaveGrace, code);
  call_before_abort();
  if (before_leaving_) before_leaving_();
  watchdog_.reset();  // its thread reads memory that MPI frees
  if (reports && by_srun_) std::this_thread::sleep_for(kOthersLeave);
  leave(code);
}

void Session::begin_end() const {
  // One thread of this rank reports; another one that reports at the same time waits for the end.
  while (aborting_.exchange(true))
    std::this_thread::sleep_for(kAbortGrace);
}

void Session::report(const Error& error) const {
  if (watchdog_) watchdog_->reporting();
  const std::string where = size_ > 1 ? place() + ": " : "";
  print_error(program_, Error(error.code(), where + error.what(), error.fix()));
  std::fflush(stderr);
}

void Session::call_before_abort() const {
  const std::lock_guard lock(before_abort_mutex_);
  if (before_abort_) before_abort_();
}

void Session::abort(const Error& error) const {
  begin_end();
  report(error);
  exit_after(kAbortGrace, error.exit_code());
  call_before_abort();
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

void Session::leave(int code) const {
  MPI_Finalize();
  std::_Exit(code);
}

Session::ControlGate Session::set_control_gate(ControlGate gate) const {
  return std::exchange(control_gate_, std::move(gate));
}

void Session::control(const CollectiveCall& call, Traffic category,
                      FunctionRef<void()> body) const {
  if (control_gate_) return control_gate_(call, category, body);
  ledger_.add(category, link_bytes(call.kind, call.count, rank_, size_, call.root));
  const CollectiveScope watched(*watchdog_, call.kind);
  body();
}

void Session::control_on_node(CollectiveKind kind, std::size_t bytes,
                              FunctionRef<void()> body) const {
  ledger_.add(control_category_,
              link_bytes(kind, static_cast<std::int64_t>(bytes), local_rank_, local_size_, 0));
  const CollectiveScope watched(*watchdog_, kind);
  body();
}

// Not compared: it carries nothing, and is made before what is timed.
void Session::meet() const {
  const CollectiveScope watched(*watchdog_, CollectiveKind::kBarrier);
  MPI_Barrier(world_);
}

void Session::broadcast(std::span<std::byte> bytes) const {
  control(byte_call(CollectiveKind::kBroadcast, bytes.size(), 0), control_category_,
          [&] { broadcast_bytes(bytes, 0, world_); });
}

void Session::gather(std::span<const std::byte> one, std::span<std::byte> all) const {
  const int bytes = static_cast<int>(one.size());
  control(byte_call(CollectiveKind::kGather, one.size(), 0), control_category_,
          [&] { MPI_Gather(one.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, 0, world_); });
}

std::vector<std::string> Session::gather(const std::string& text) const {
  const int length = static_cast<int>(text.size());
  const std::vector<int> lengths = gather(length);
  std::vector<int> starts(lengths.size());
  for (std::size_t i = 1; i < lengths.size(); ++i)
    starts[i] = starts[i - 1] + lengths[i - 1];
  std::string all(root() ? static_cast<std::size_t>(starts.back() + lengths.back()) : 0, ' ');
  const auto others = static_cast<std::int64_t>(all.size()) - length;
  ledger_.add(control_category_, root() ? LinkBytes{0, others} : LinkBytes{length, 0});
  const CollectiveScope watched(*watchdog_, CollectiveKind::kGather);
  MPI_Gatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, 0,
              world_);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    texts.push_back(
        all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i])));
  return texts;
}

void Session::sum(std::span<double> values) const {
  CollectiveCall call = byte_call(CollectiveKind::kAllReduce, values.size_bytes(), -1);
  call.op = ReduceOp::kSum;
  control(call, Traffic::kMetrics, [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                  world_);
  });
}

void Session::max(std::span<double> values) const {
  control(byte_call(CollectiveKind::kAllReduce, values.size_bytes(), -1), control_category_, [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  world_);
  });
}

bool Session::equal(std::uint64_t value) const {
  bool equal = false;
  control(byte_call(CollectiveKind::kAllReduce, kEqualOnAllBytes, -1), control_category_,
          [&] { equal = equal_on_all(world_, value); });
  return equal;
}

void Session::move(std::span<std::byte> bytes, int from, int to) const {
  const CollectiveScope watched(*watchdog_, CollectiveKind::kGather);
  if (rank_ != from && rank_ != to) return;
  const auto whole = static_cast<std::int64_t>(bytes.size());
  ledger_.add(control_category_, rank_ == from ? LinkBytes{whole, 0} : LinkBytes{0, whole});
  move_bytes(bytes, from, to, world_);
}

// Not a step in the count of collectives: the ranks that take no part continue with the next one.
void Session::swap(int peer, std::span<const std::byte> out, std::span<std::byte> in) const {
  const CollectiveScope watched(*watchdog_, CollectiveKind::kAllGather, -1,
                                CollectiveScope::Counts::kNo);
  MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_BYTE, peer, kSwapTag, in.data(),
               static_cast<int>(in.size()), MPI_BYTE, peer, kSwapTag, world_, MPI_STATUS_IGNORE);
}

void Session::broadcast_on_node(std::span<std::byte> bytes) const {
  control_on_node(CollectiveKind::kBroadcast, bytes.size(),
                  [&] { broadcast_bytes(bytes, 0, node_); });
}

double Session::sum_on_node(double value) const {
  control_on_node(CollectiveKind::kAllReduce, sizeof value,
                  [&] { MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, node_); });
  return value;
}

void Session::gather_on_node(std::span<const std::byte> one, std::span<std::byte> all) const {
  const int bytes = static_cast<int>(one.size());
  control_on_node(CollectiveKind::kAllGather, one.size(), [&] {
    MPI_Allgather(one.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, node_);
  });
}

std::string Session::place() const {
  return fmt::format("rank {} ({})", rank_, host_);
}

void require_agreement(const Session& session, const std::vector<NamedText>& stated) {
  const auto texts = session.gather(packed_statement(session.host(), stated));
  session.together([&] {
    if (!session.root()) return;
    if (const auto error = disagreement(texts)) throw *error;
  });
}

void require_same_on_nodes(const Session& session, const std::string& what,
                           FunctionRef<std::string()> make) {
  std::array<char, 64> text;
  text.fill(' ');
  session.together([&] {
    if (session.local_rank() == 0) make().copy(text.data(), text.size());
  });
  session.broadcast_on_node(text);
  require_agreement(session, {{what, {text.data(), text.size()}}});
}

bool equal_on_all(MPI_Comm comm, std::uint64_t value) {
  // The maximum of the complement is the complement of the minimum.
  const std::array<std::uint64_t, 2> mine = {value, ~value};
  std::array<std::uint64_t, 2> most{};
  MPI_Allreduce(mine.data(), most.data(), 2, MPI_UINT64_T, MPI_MAX, comm);
  return most[0] == ~most[1];
}

void broadcast_bytes(std::span<std::byte> data, int root, MPI_Comm comm, std::size_t piece_bytes) {
  in_pieces(data, piece_bytes,
            [&](std::byte* bytes, int count) { MPI_Bcast(bytes, count, MPI_BYTE, root, comm); });
}

void move_bytes(std::span<std::byte> data, int from, int to, MPI_Comm comm,
                std::size_t piece_bytes) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  in_pieces(data, piece_bytes, [&](std::byte* bytes, int count) {
    if (rank == from)
      MPI_Send(bytes, count, MPI_BYTE, to, kMoveTag, comm);
    else
      MPI_Recv(bytes, count, MPI_BYTE, from, kMoveTag, comm, MPI_STATUS_IGNORE);
  });
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  version.erase(std::min(version.find_first_of(",\n"), version.size()));
  // MPICH and Cray MPICH align a column with tabs or blanks.
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  std::ranges::replace_if(version, is_blank, ' ');
  const auto both = [](char one, char next) { return one == ' ' && next == ' '; };
  version.erase(std::unique(version.begin(), version.end(), both), version.end());
  return version;
}

}  // namespace gradsync
