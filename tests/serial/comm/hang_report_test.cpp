// SPDX-License-Identifier: BSD-3-Clause
#include "comm/hang_report.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "comm/hang_report.h"
#include "record/run.h"
#include "stats/statistics.h"

using namespace gradsync;

namespace {

constexpr auto kAllReduce = static_cast<std::int32_t>(CollectiveKind::kAllReduce);
constexpr auto kGather = static_cast<std::int32_t>(CollectiveKind::kGather);
constexpr auto kBroadcast = static_cast<std::int32_t>(CollectiveKind::kBroadcast);

/// A rank in a collective (kind >= 0) or between two, after `sequence` of them.
RankReport rank_at(int rank, std::int64_t sequence, std::int32_t kind = -1, char process = 'S') {
  RankReport report;
  report.rank = rank;
  report.sequence = sequence;
  report.kind = kind;
  report.iteration = 7;
  report.process = process;
  report.answers = true;
  if (kind >= 0) {
    report.waited_s = 3.1;
    report.limit_s = 3;
    report.expired = true;
  }
  return report;
}

RankReport silent(int rank) {
  RankReport report;
  report.rank = rank;
  return report;
}

std::vector<int> missing(const std::vector<RankReport>& reports) {
  std::vector<int> ranks;
  for (const std::size_t i : sort_ranks(reports).missing)
    ranks.push_back(reports[i].rank);
  return ranks;
}

using MissingRanks = std::vector<int>;

}  // namespace

TEST_CASE(
    "hang: a rank that has not come is missing, whether it is late, stopped, gone or frozen") {
  for (const char process : {'S', 'R', 'D', '?', 'T', 't', 'Z', 'F', '\0'})
    CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 4, -1, process),
                   rank_at(2, 5, kAllReduce)}) == MissingRanks{1});
}

TEST_CASE("hang: a rank that is stopped inside the collective is missing") {
  CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 5, kAllReduce, 'T')}) == MissingRanks{1});
}

TEST_CASE("hang: ranks of a node that does not answer are missing") {
  CHECK(missing({silent(0), silent(1), rank_at(2, 5, kAllReduce), rank_at(3, 5, kAllReduce)}) ==
        MissingRanks{0, 1});
}

TEST_CASE("hang: a rank that has left the collective is missing if its process does not run") {
  CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 5, kAllReduce), rank_at(2, 6, -1, 'Z')}) ==
        MissingRanks{2});
}

TEST_CASE("hang: ranks that wait in a later collective are not missing") {
  // The root waits in a gather; ranks that have sent their part wait in the broadcast after it.
  CHECK(missing({rank_at(0, 5, kGather), rank_at(1, 4), rank_at(2, 6, kBroadcast),
                 rank_at(3, 6, kBroadcast)}) == MissingRanks{1});
  CHECK(missing({rank_at(0, 5, kGather), rank_at(1, 5, -1, 'T'), rank_at(2, 6, kBroadcast)}) ==
        MissingRanks{1});
}

TEST_CASE("hang: a rank that has left the collective and computes is not missing in it") {
  CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 4, -1, 'T'), rank_at(2, 5)}) ==
        MissingRanks{1});
  CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 4), rank_at(2, 5)}) == MissingRanks{1});
}

TEST_CASE("hang: a rank that has left the collective is missing if all others are in one") {
  // MPI needs the progress of rank 0, which writes to its disk, to end what the others are in.
  CHECK(missing({rank_at(0, 5), rank_at(1, 5, kGather)}) == MissingRanks{0});
  CHECK(missing({rank_at(0, 5), rank_at(1, 5, kAllReduce), rank_at(2, 6, kAllReduce)}) ==
        MissingRanks{0});
}

TEST_CASE(
    "hang: of ranks that are all in collectives, those are missing whose is not that of most") {
  CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 5, kGather), rank_at(2, 5, kAllReduce)}) ==
        MissingRanks{1});
  CHECK(missing({rank_at(0, 4, kAllReduce), rank_at(1, 5, kAllReduce),
                 rank_at(2, 5, kAllReduce)}) == MissingRanks{0});
  CHECK(missing({rank_at(0, 5, kAllReduce), rank_at(1, 5, kAllReduce)}).empty());
}

TEST_CASE("hang: missing ranks that are busy with I/O are waited for until the I/O limit") {
  WatchLimits limits;
  limits.timeout_s = 3;
  limits.io_s = 10;
  std::vector<RankReport> reports = {rank_at(0, 4), rank_at(1, 5, kAllReduce)};
  const auto on_disk = [&] { return disk_wait(reports, sort_ranks(reports), limits); };
  CHECK(on_disk() == DiskWait::kNone);
  reports[0].phase = WatchedPhase::kJournal;
  reports[0].phase_s = 9.9;
  CHECK(on_disk() == DiskWait::kInLimit);
  reports[0].phase_s = 10.1;
  CHECK(on_disk() == DiskWait::kTooLong);
  reports[0].phase_s = 1;
  reports[0].process = 'T';
  CHECK(on_disk() == DiskWait::kNone);
  reports[0].process = 'D';
  reports[0].answers = false;
  CHECK(on_disk() == DiskWait::kNone);
  reports[0].answers = true;
  reports.push_back(rank_at(2, 4));
  CHECK(on_disk() == DiskWait::kNone);
  reports.pop_back();
  CHECK(on_disk() == DiskWait::kInLimit);
  reports[0].phase = WatchedPhase::kEvaluation;
  CHECK(on_disk() == DiskWait::kNone);
}

TEST_CASE("hang: the message names all missing ranks and what they did") {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 20; ++rank)
    reports.push_back(rank < 12 ? silent(rank) : rank_at(rank, 5, kAllReduce));
  reports[14] = rank_at(14, 4, -1, 'T');
  reports[14].activity = Activity::kForward;
  std::vector<std::string> hosts(20, "n1");
  std::string text = hang_text(reports, hosts, "a card fell off");
  for (const char* part :
       {"hang: allreduce number 5 of iteration 7 cannot end: a card fell off; missing",
        "missing ranks: 0-11, 14; waiting ranks: 12-13, 15-19.",
        "rank 0 (n1): its node does not answer"})
    CHECK_MESSAGE(text.find(part) != text.npos, text);
  reports.erase(reports.begin(), reports.begin() + 12);
  text = hang_text(reports, hosts, "");
  CHECK_MESSAGE(
      text.find("allreduce number 5 of iteration 7 has waited 3.1 s (training: limit 3 s); ") !=
          text.npos,
      text);
  CHECK_MESSAGE(text.find("missing ranks: 14; waiting ranks: 12-13, 15-19. rank 14 (n1): forward, "
                          "iteration 7, process stopped") != text.npos,
                text);
  WatchLimits limits;
  CHECK(hang_fix(reports, hosts, limits) == "check the hosts of the missing ranks");
  limits.timeout_option = "--timeout";
  CHECK(hang_fix(reports, hosts, limits).find("--timeout sets") != std::string::npos);
}

TEST_CASE("hang: a program that does not train names what it does, and no iteration") {
  std::vector<RankReport> reports = {rank_at(0, 5, kAllReduce), rank_at(1, 4)};
  for (RankReport& report : reports) {
    report.phase = WatchedPhase::kChecks;
    report.iteration = RankReport().iteration;
  }
  CHECK(hang_text(reports, {"n1", "n2"}, "") ==
        "hang: allreduce number 5 has waited 3.1 s (checks: limit 3 s); missing ranks: 1; "
        "waiting ranks: 0. rank 1 (n2): checks");
}

TEST_CASE("hang: where all ranks wait to be connected, the fix is NCCL's") {
  std::vector<RankReport> reports = {rank_at(0, 5, kAllReduce), rank_at(1, 5, kAllReduce)};
  const auto fix = [&] { return hang_fix(reports, {"n1", "n2"}, {}); };
  CHECK(fix() == "check the hosts of the missing ranks");
  for (RankReport& report : reports)
    report.phase = WatchedPhase::kTransport;
  CHECK_MESSAGE(fix().find("NCCL_SOCKET_IFNAME") != std::string::npos, fix());
  reports[1] = rank_at(1, 4);
  CHECK(fix() == "check the hosts of the missing ranks");
}

TEST_CASE("hang: all ranks wait in containers between which MPI copies no message") {
  std::vector<RankReport> reports = {rank_at(0, 5, kAllReduce), rank_at(1, 5, kAllReduce),
                                     rank_at(2, 6, kAllReduce), rank_at(3, 6, kAllReduce)};
  const std::vector<std::string> hosts = {"n1", "n1", "n2", "n2"};
  const auto named = [&] {
    return hang_fix(reports, hosts, {}).find("--mca btl_vader_single_copy_mechanism none") !=
           std::string::npos;
  };
  CHECK_FALSE(named());
  for (RankReport& report : reports)
    report.cma_namespace = 10 + static_cast<std::uint64_t>(report.rank / 2);
  CHECK_FALSE(named());  // one container a host
  reports[3].cma_namespace = 13;
  CHECK(named());
  CHECK(hang_fix(reports, hosts, {}).find("ranks of n2 are in different user namespaces") !=
        std::string::npos);
  reports[1].process = 'T';  // the others wait for it
  CHECK_FALSE(named());
  reports[1].process = '?';
  CHECK(named());
  reports[0] = rank_at(0, 4);
  CHECK_FALSE(named());
}

TEST_CASE("hang: ranks are listed as ranges") {
  CHECK(rank_list({}) == "");
  CHECK(rank_list({3}) == "3");
  CHECK(rank_list({0, 1, 2, 3, 7, 9, 10}) == "0-3, 7, 9-10");
}

TEST_CASE("limits: every phase has its own, by its rule") {
  WatchLimits limits;
  limits.timeout_s = 60;
  for (const PhaseEntry& entry : watched_phases()) {
    CHECK(&phase_entry(entry.phase) == &entry);
    limits.automatic = false;
    const double given = limit_s(entry.phase, limits, 1000);
    limits.automatic = true;
    const double automatic = limit_s(entry.phase, limits, 1000);
    switch (entry.rule) {
      case LimitRule::kTimeout:
        CHECK((given == 60 && automatic == 60));
        break;
      case LimitRule::kWork:
        CHECK((given == 60 && automatic == 20000));
        CHECK(limit_s(entry.phase, limits, 0) == 90);
        break;
      case LimitRule::kStart:
        CHECK((given == 90 && automatic == 90));
        break;
      case LimitRule::kInputOutput:
        CHECK((given == 900 && automatic == 900));
        break;
    }
    WatchLimits longer = limits;
    longer.timeout_s = 5000;
    CHECK(limit_s(entry.phase, longer, 0) == 5000);
  }
}

TEST_CASE("limits: docs/hangs.md has the table of phases") {
  std::ifstream file("docs/hangs.md");
  std::stringstream text;
  text << file.rdbuf();
  CHECK_MESSAGE(text.str().find(phase_table()) != std::string::npos, phase_table());
}

TEST_CASE("running time: a long pause between two looks counts as one second") {
  RunningTime ran(100);
  CHECK(ran.advance_to(100.1) == doctest::Approx(0.1));
  CHECK(ran.advance_to(100.9) == doctest::Approx(0.9));
  CHECK(ran.advance_to(3700.9) == doctest::Approx(1.9));
  CHECK(ran.advance_to(3701.0) == doctest::Approx(2.0));
  CHECK(ran.advance_to(3700.0) == doctest::Approx(2.0));  // no clock of ours, but no harm
}

TEST_CASE("recent median: of the last values only") {
  RecentMedian median;
  median.add(5);
  CHECK(median.value() == 5);
  median.add(1);
  median.add(3);
  CHECK(median.value() == 3);
  CHECK(median.count() == 3);
  for (std::size_t i = 0; i < RecentMedian::kKept; ++i)
    median.add(i % 2 == 0 ? 100 : 200);
  CHECK(median.value() == 100);
  for (int i = 0; i < 40; ++i)
    median.add(7);
  CHECK(median.value() == 7);
}

TEST_CASE("deadline guard: SIGTERM ends a rank whose turn to report has not come") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGTERM, SIG_IGN);  // as a run that takes it for a request to stop lives on
    const DeadlineGuard guard("test", Error(ExitCode::kHang, "late"), 0.2, 8);
    ::sleep(20);
    ::_exit(0);
  }
  int status = 0;
  pid_t ended = 0;
  while (ended == 0) {  // until the guard stands, the signal is ignored
    ::usleep(100'000);
    ::kill(child, SIGTERM);
    ended = ::waitpid(child, &status, WNOHANG);
  }
  REQUIRE(ended == child);
  CHECK(WIFSIGNALED(status));
  CHECK((WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)) == SIGTERM);
}
