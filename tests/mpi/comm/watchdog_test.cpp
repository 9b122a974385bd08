// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "comm/hang_detector.h"
#include "mpi/ranks.h"
#include "stats/clock.h"

using namespace gradsync;

namespace {

/// Messages between nodes that this rank has sent.
std::atomic<int> sent_to_nodes{0};

}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  constexpr int kTagOfNodes = 86;
  if (tag == kTagOfNodes) ++sent_to_nodes;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace {

constexpr double kTimeout_s = 0.6;

WatchLimits short_limits() {
  WatchLimits limits;
  limits.timeout_s = kTimeout_s;
  limits.grace_s = 1;  // more ranks than cores: answers take their time
  return limits;
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// A watchdog that keeps its message instead of ending the job.
class Watched {
 public:
  Watched(const WatchLimits& limits, MPI_Comm node)
      : watchdog_(test::session(), limits, node, [this](const Error& error) {
          text_ = error.what();
          code_ = error.exit_code();
          ended_ = true;
          std::ofstream(said()) << text_;
        }) {}

  Watchdog& watchdog() { return watchdog_; }
  /// Returns when a rank has reported, and time for a second one to do so has passed; after half a
  /// minute in any case.
  void until_reported() const {
    for (int i = 0; i < 300 && !std::filesystem::exists(said()); ++i)
      sleep_s(0.1);
    sleep_s(0.7);
  }
  /// Waits for all ranks, as one collective that is watched.
  void meet() {
    const CollectiveScope watched(watchdog_, CollectiveKind::kBarrier, 3);
    MPI_Barrier(test::session().world());
  }
  /// Collective: how many ranks have reported a hang, and on all ranks what the lowest said.
  int reports(std::string& text) {
    const Session& session = test::session();
    int mine = ended_ ? session.rank() : session.size(), first = 0, count = ended_, all = 0;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, session.world());
    MPI_Allreduce(&count, &all, 1, MPI_INT, MPI_SUM, session.world());
    if (all == 0) return 0;
    std::string line = ended_ ? text_ : std::string();
    line.resize(2048);
    MPI_Bcast(line.data(), 2048, MPI_CHAR, first, session.world());
    text = line.c_str();
    if (ended_) CHECK(code_ == 86);
    return all;
  }

 private:
  std::filesystem::path said() const { return folder_.path() / "reported"; }

  test::SharedFolder folder_;
  std::string text_;
  int code_ = 0;
  std::atomic<bool> ended_{false};
  Watchdog watchdog_;
};

bool alone() {
  if (test::session().size() > 1) return false;
  MESSAGE("SKIP: one rank waits for nobody");
  return true;
}

/// The ranks as nodes of `size` ranks.
class Nodes {
 public:
  explicit Nodes(int size) {
    const Session& session = test::session();
    MPI_Comm_split(session.world(), session.rank() / size, session.rank(), &comm_);
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;
  ~Nodes() { MPI_Comm_free(&comm_); }
  MPI_Comm comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

TEST_CASE("watchdog: one rank reports, and names the missing rank alone, on one node and on more") {
  if (alone()) return;
  const int size = test::session().size();
  for (const auto& [ranks_a_node, late] : {std::pair(size, size - 1), {2, 0}, {1, 0}}) {
    const Nodes nodes(ranks_a_node);
    Watched watched(short_limits(), nodes.comm());
    watched.meet();
    watched.watchdog().doing(Activity::kForward, 5);
    if (test::session().rank() == late) watched.until_reported();
    watched.meet();
    std::string text;
    CHECK(watched.reports(text) == 1);
    const std::string expected = "missing ranks: " + std::to_string(late) + "; waiting ranks: ";
    CHECK_MESSAGE(text.find(expected) != text.npos, text);
    const std::string where = "rank " + std::to_string(late) + " (" + test::session().host() + ")";
    CHECK_MESSAGE(text.find(where) != text.npos, text);
    // A node of its own listens once its rank has been busy for a second.
    if (ranks_a_node > 1) CHECK_MESSAGE(text.find("forward, iteration 5") != text.npos, text);
  }
}

TEST_CASE("watchdog: a rank that computes for long, alone on its node, says what it does") {
  if (alone()) return;
  const Nodes nodes(1);
  WatchLimits limits = short_limits();
  limits.timeout_s = 2;
  Watched watched(limits, nodes.comm());
  watched.meet();
  watched.watchdog().doing(Activity::kForward, 5);
  if (test::session().rank() == 0) watched.until_reported();
  watched.meet();
  std::string text;
  CHECK(watched.reports(text) == 1);
  CHECK_MESSAGE(text.find("forward, iteration 5") != text.npos, text);
}

TEST_CASE("watchdog: ranks that are in time, or come before the grace period ends, end nothing") {
  if (alone()) return;
  WatchLimits limits = short_limits();
  limits.grace_s = 60;
  Watched watched(limits, test::session().node());
  for (int i = 0; i < 2; ++i) {
    if (test::session().rank() == 0) sleep_s(kTimeout_s + 0.5);
    watched.meet();
  }
  std::string text;
  CHECK_MESSAGE(watched.reports(text) == 0, text);
}

TEST_CASE("watchdog: a launch behind a rank that stays away is a wait, and the next one another") {
  if (alone()) return;
  const int late = test::session().size() - 1;
  const bool launches = test::session().rank() != late;
  Watched watched(short_limits(), test::session().node());
  watched.meet();
  {
    const LaunchScope scope(launches ? &watched.watchdog() : nullptr, /*in_data=*/false);
    for (int i = 0; i < 8; ++i) {
      watched.watchdog().doing(Activity::kForward, 7);
      sleep_s(kTimeout_s / 4);
    }
    // Batches may come from a disk.
    watched.watchdog().doing(Activity::kData, 8);
    sleep_s(2 * kTimeout_s);
    std::string text;
    CHECK_MESSAGE(watched.reports(text) == 0, text);
    if (launches) watched.watchdog().doing(Activity::kBackward, 8);
    watched.until_reported();
  }
  std::string text;
  CHECK(watched.reports(text) == 1);
  CHECK_MESSAGE(text.find("hang: a kernel launch of iteration 8 has waited") != text.npos, text);
  CHECK_MESSAGE(text.find("missing ranks: " + std::to_string(late) + "; waiting") != text.npos,
                text);
}

TEST_CASE("watchdog: a rank that is busy with I/O is waited for, as long as its limit allows") {
  if (alone()) return;
  const int size = test::session().size();
  for (const auto& [ranks_a_node, io_s] : {std::pair(size, 60.0), {1, 60.0}, {1, 1.0}}) {
    WatchLimits limits = short_limits();
    limits.io_s = io_s;
    const bool ends = io_s < 10;
    const Nodes nodes(ranks_a_node);
    Watched watched(limits, nodes.comm());
    watched.meet();
    if (test::session().rank() == 0) {
      const WatchdogTimeoutExtension writes(watched.watchdog(), WatchedPhase::kJournal);
      if (ends)
        watched.until_reported();
      else
        sleep_s(2.5);
    }
    watched.meet();
    std::string text;
    CHECK(watched.reports(text) == (ends ? 1 : 0));
    if (ends) CHECK_MESSAGE(text.find(": journal, iteration") != text.npos, text);
  }
}

TEST_CASE("watchdog: after a wait for a disk the ranks have a whole limit to meet") {
  if (alone()) return;
  WatchLimits limits = short_limits();
  limits.timeout_s = 2;
  limits.io_s = 60;
  limits.grace_s = 0.3;
  for (const int ranks_a_node : {test::session().size(), 1}) {
    const Nodes nodes(ranks_a_node);
    Watched watched(limits, nodes.comm());
    watched.meet();
    if (test::session().rank() == 0) {
      {
        const WatchdogTimeoutExtension writes(watched.watchdog(), WatchedPhase::kJournal);
        sleep_s(3.5);
      }
      // In the collective of the others, which has yet to end.
      const CollectiveScope watched_too(watched.watchdog(), CollectiveKind::kBarrier, 3);
      sleep_s(1);
      MPI_Barrier(test::session().world());
    } else {
      watched.meet();
    }
    std::string text;
    CHECK_MESSAGE(watched.reports(text) == 0, text);
  }
}

TEST_CASE("watchdog: nodes fall silent when a wait that expired has ended") {
  if (alone() || !test::session().threads_may_call()) return;
  WatchLimits limits = short_limits();
  limits.grace_s = 60;
  const Nodes nodes(1);
  Watched watched(limits, nodes.comm());
  watched.meet();
  const int at_first = sent_to_nodes;
  if (test::session().rank() == 0) sleep_s(kTimeout_s + 1);
  watched.meet();
  sleep_s(5);  // all work and listen, longer than what was told is fresh
  const int before = sent_to_nodes;
  CHECK(before > at_first);
  sleep_s(2);
  CHECK(sent_to_nodes == before);
  watched.meet();
}

TEST_CASE("watchdog: a message whose sender stands still is not waited for") {
  const Session& session = test::session();
  if (alone() || !session.threads_may_call()) return;
  NodeMessages messages(session, {session.rank()});
  const int last = session.size() - 1;
  std::vector<RankReport> many(50'000);  // longer than MPI sends at once
  for (RankReport& report : many)
    report.rank = last;
  if (session.rank() == last) {
    messages.tell(many, "its card fell off", true, false, 1);
    sleep_s(3);
  } else {
    sleep_s(1);
    const Stopwatch watch;
    messages.receive(1);
    CHECK(watch.elapsed_s() < 1);
  }
  MPI_Barrier(session.world());
  const Stopwatch watch;
  while (session.rank() != last && messages.why(1, 1).empty() && watch.elapsed_s() < 20)
    messages.receive(1);
  if (session.rank() != last) CHECK(messages.why(1, 1) == "its card fell off");
  MPI_Barrier(session.world());
}

TEST_CASE("watchdog: a wait takes the limit of its phase, and each collective its own") {
  if (alone()) return;
  WatchLimits limits = short_limits();
  limits.timeout_s = 2;
  limits.io_s = 60;
  Watched watched(limits, test::session().node());
  {
    const WatchdogTimeoutExtension all_wait(watched.watchdog(), WatchedPhase::kCheckpoint);
    CHECK(watched.watchdog().limit_s() == 60);
    if (test::session().rank() == 0) sleep_s(3);
    watched.meet();
  }
  CHECK(watched.watchdog().limit_s() == 2);
  // Longer than the timeout in all, but not one wait of it.
  const CollectiveScope outer(watched.watchdog(), CollectiveKind::kAllReduce);
  for (int i = 0; i < 5; ++i) {
    sleep_s(0.6);
    watched.meet();
  }
  std::string text;
  CHECK_MESSAGE(watched.reports(text) == 0, text);
}

TEST_CASE("watchdog: a wait that can never end is reported at once, with the reason") {
  if (alone()) return;
  WatchLimits limits;
  limits.timeout_s = 600;
  limits.grace_s = 1;
  for (const int ranks_a_node : {test::session().size(), 1}) {
    if (ranks_a_node == 1 && !test::session().threads_may_call()) continue;
    const Nodes nodes(ranks_a_node);
    Watched watched(limits, nodes.comm());
    const bool last = test::session().rank() == test::session().size() - 1;
    std::optional<CollectiveScope> in;
    if (last) {
      in.emplace(watched.watchdog(), CollectiveKind::kReduce);
      watched.watchdog().expire("a card fell off");
    }
    watched.until_reported();
    std::string text;
    CHECK(watched.reports(text) == 1);
    CHECK_MESSAGE(text.find("a card fell off") != text.npos, text);
  }
}

TEST_CASE("watchdog: a rank that the launcher continues to end it does not report a second time") {
  if (alone()) return;
  const Session& session = test::session();
  const WatchLimits limits = short_limits();
  WatchState state(limits);
  std::atomic<int> reports{0};
  HangDetector detector(session, state, session.world(), [&](const Error&) { ++reports; });
  const auto wait_in_a_barrier = [&] {
    ++state.waits;
    detector.mine().kind = static_cast<std::int32_t>(CollectiveKind::kBarrier);
  };
  if (session.rank() == 0) {
    wait_in_a_barrier();
    for (int i = 0; i < 300 && reports == 0; ++i)
      sleep_s(0.1);
    CHECK(reports == 1);
    detector.mine().pid = std::numeric_limits<std::int32_t>::max();  // no process has it: gone
  }
  MPI_Barrier(session.world());
  if (session.rank() != 0) {
    wait_in_a_barrier();
    sleep_s(limits.timeout_s + limits.grace_s + 1);
    CHECK(reports == 0);
  }
  MPI_Barrier(session.world());
}

TEST_CASE("watchdog: where all nodes answer a hang is reported after the grace period") {
  if (alone()) return;
  const Session& session = test::session();
  WatchLimits limits = short_limits();
  limits.timeout_s = 0.3;
  limits.grace_s = 0.2;
  double shortest_s = 60;  // of three: the machine may be busy
  for (int i = 0; i < 3; ++i) {
    WatchState state(limits);
    std::atomic<bool> reported{false};
    HangDetector detector(session, state, session.world(), [&](const Error&) { reported = true; });
    if (session.rank() == 0) {
      const double begin_s = now_s();
      ++state.waits;
      detector.mine().kind = static_cast<std::int32_t>(CollectiveKind::kBarrier);
      for (int look = 0; look < 600 && !reported; ++look)
        sleep_s(0.05);
      shortest_s = std::min(shortest_s, now_s() - begin_s);
    }
    MPI_Barrier(session.world());
  }
  if (session.rank() == 0) CHECK(shortest_s < 3);
}

TEST_CASE("watchdog: a node tells of its own ranks and of no others") {
  const Session& session = test::session();
  if (alone() || !session.threads_may_call()) return;
  const int last = session.size() - 1;
  NodeMessages messages(session, {session.rank()});
  RankReport told;
  told.rank = last;
  told.sequence = 7;
  if (session.rank() == last) {
    messages.tell({told}, "", true, false, 0);
  } else {
    for (int i = 0; i < 3000 && !messages.heard(0, 1, session.size()); ++i) {
      messages.receive(0);
      sleep_s(0.01);
    }
    std::vector<RankReport> all(static_cast<std::size_t>(session.size()));
    all.front().sequence = 3;
    messages.copy_to(all, 0, 1);
    CHECK(all.front().sequence == 3);
    CHECK(all.back().sequence == 7);
  }
  MPI_Barrier(session.world());
}

TEST_CASE("watchdog: the state of a process is the letter that the kernel has for it") {
  const StatusBoard board(MPI_COMM_SELF, {test::session().rank()});
  const auto reports = board.reports(0);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].process == 'R');
}

TEST_CASE("watchdog: a process number of another container says nothing of the process" *
          test::several_ranks()) {
  const Session& session = test::session();
  if (session.local_size() == 1) return;
  std::vector<int> ranks(static_cast<std::size_t>(session.local_size()));
  const int rank = session.rank();
  MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, session.node());
  StatusBoard board(session.node(), ranks);
  // The first rank, as it is after `unshare --pid`: no process here has that number.
  constexpr std::int32_t kNoProcess = 1 << 30;
  if (session.local_rank() == 0) {
    board.mine().pid = kNoProcess;
    board.mine().pid_namespace = 1;
  }
  MPI_Barrier(session.node());
  // Seen by the others; in its own container the number would be its own.
  if (session.local_rank() != 0)
    for (const RankReport& report : board.reports(0))
      CHECK_MESSAGE(report.runs(), report.rank);
  MPI_Barrier(session.node());
}
