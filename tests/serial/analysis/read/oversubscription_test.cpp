#include "analysis/read/oversubscription.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

/// Ranks of one host with these cores and threads.
std::vector<RankPlace> host(const std::vector<std::string>& cores, std::int32_t threads = 1) {
  std::vector<RankPlace> places;
  for (const std::string& list : cores) {
    RankPlace place;
    place.rank = static_cast<std::int32_t>(places.size());
    place.host = "node1";
    place.affinity = list;
    place.threads = threads;
    places.push_back(place);
  }
  return places;
}

}  // namespace

TEST_CASE("oversubscription: threads of a host against the cores they may use") {
  CHECK_FALSE(oversubscription(host({"0-1", "0-1"})));
  const auto found = oversubscription(host({"0-1", "0-1", "0-1", "0-1"}));
  REQUIRE(found);
  CHECK(oversubscription_text(*found) == "4 ranks with 4 threads had 2 cores on host node1");
  CHECK(oversubscription(host({"0"}, 2)));
  CHECK_FALSE(oversubscription(host({"0,2-3,7"}, 4)));
}

TEST_CASE("oversubscription: ranks bound to the same core while others idle") {
  const auto found = oversubscription(host({"0", "0", "1-7"}));
  REQUIRE(found);
  CHECK(*found == Oversubscription{{2, 2, 1}, "node1"});
  CHECK_FALSE(oversubscription(host({"0", "1", "0-7"})));
}

TEST_CASE("oversubscription: each host by itself, and nothing of what was not recorded") {
  auto places = host({"0-1", "0-1", "0-1", "0-1"});
  places[2].host = places[3].host = "node2";
  CHECK_FALSE(oversubscription(places));
  places[3].host = "node1";
  CHECK(oversubscription(places));
  for (const std::string cores : {"", "all", "3-", "0-99999999999", "-1-2"}) {
    places[0].affinity = cores;
    CHECK_MESSAGE(!oversubscription(places), cores);
  }
  places[0].affinity = std::string(95, '1');  // cut when it was recorded
  CHECK_FALSE(oversubscription(places));
  places = host({"0", "0"}, 0);
  CHECK_FALSE(oversubscription(places));
  CHECK_FALSE(oversubscription({}));
}

TEST_CASE(
    "oversubscription: every table of iterations names such runs, and they are a family of their "
    "own") {
  const TestFolder folder;
  write_study(folder / "crowded.h5", on_cores({"ddp", 4, 32, 0.01, 0.001}, "0-1"));
  write_study(folder / "roomy.h5", on_cores({"ddp", 2, 32, 0.01, 0.001}, "0-1"));
  const RunSet set = loaded(folder);
  const std::string note =
      "oversubscribed: 4 ranks with 4 threads had 2 cores on host node0 (crowded)";
  for (const char* name : {"modes", "split", "speedup", "modes-paired", "prediction", "what-if"})
    for (const TableSpec& spec : tables())
      if (spec.name == name) CHECK_MESSAGE(contains(all_notes(spec.make(set, {})), note), name);
  const auto cells = study_cells(set);
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].short_of_cores != cells[1].short_of_cores);
  CHECK(cells[0].family != cells[1].family);
}

namespace {

/// 10 ms of which 2 ms compute waits for communication; `cpu_s` a rank and iteration.
StudyRun using_cpu(double cpu_s, const std::string& mode = "ddp", const std::string& mpi = "") {
  StudyRun run = with_cpu_time({mode, 2, 32, 0.008, 0.002}, 100 * cpu_s);
  run.change_info = [mpi, before = run.change_info](RunInfo& info) {
    before(info);
    info.provenance.push_back({"mpi", mpi});
  };
  return run;
}

double least_share(const StudyRun& study) {
  const TestFolder folder;
  write_study(folder / "run.h5", study);
  const RunSet set = loaded(folder);
  return *std::min_element(set.runs[0].core_shares.begin(), set.runs[0].core_shares.end());
}

std::string shortage_of(const StudyRun& study) {
  const TestFolder folder;
  write_study(folder / "run.h5", study);
  return std::string(core_shortage(loaded(folder).runs[0]));
}

}  // namespace

TEST_CASE("shared host: the part of a core that ranks got while they did not wait") {
  CHECK(least_share(using_cpu(0.008)) == doctest::Approx(1));
  CHECK(least_share(using_cpu(0.004)) == doctest::Approx(0.5));
  CHECK(shortage_of(using_cpu(0.0073)).empty());
  CHECK(shortage_of(using_cpu(0.0071)) == "shared host");
  // What is used beside compute in one iteration does not make up for what another one lacks.
  StudyRun uneven = using_cpu(0);
  uneven.change = [before = uneven.change](IterationRow& row) {
    before(row);
    for (RankIteration& rank : row.ranks)
      rank[Usage::kCpuTime] = row.iteration % 2 == 0 ? 0.004 : 0.014;
  };
  CHECK(least_share(uneven) ==
        doctest::Approx(7.0 / 9));  // of 10, the one that lacked most left out
}

TEST_CASE("shared host: a single stall of any cause is none") {
  StudyRun stalled = using_cpu(0.008);
  stalled.change = [before = stalled.change](IterationRow& row) {
    before(row);
    if (row.iteration != 7) return;
    for (RankIteration& rank : row.ranks) {
      rank[Phase::kOther] += 3;
      rank[Phase::kIteration] += 3;
    }
  };
  CHECK(shortage_of(stalled).empty());
}

TEST_CASE("shared host: ranks of one host that together got less than a core while all wait") {
  StudyRun waiting = with_cpu_time({"ddp", 2, 32, 0.001, 0.009}, 0.3);
  CHECK(least_share(waiting) == doctest::Approx(0.6));
  CHECK(shortage_of(waiting) == "shared host");
  waiting.change_info = [before = waiting.change_info](RunInfo& info) {
    before(info);
    info.topology[1].host = "node1";
  };
  CHECK(shortage_of(waiting).empty());
}

TEST_CASE("shared host: waits that spin in MPI need a core, those that may sleep do not") {
  const std::string open_mpi = "Open MPI v4.1.4 (MPI 3.1)";
  CHECK(least_share(using_cpu(0.008, "gather-scatter", open_mpi)) == doctest::Approx(0.8));
  CHECK(least_share(using_cpu(0.008, "data-parallel", open_mpi)) == doctest::Approx(0.8));
  CHECK(least_share(using_cpu(0.008, "gather-scatter", "MPICH 4.1")) == doctest::Approx(1));
  CHECK(least_share(using_cpu(0.008, "ddp", open_mpi)) == doctest::Approx(1));
}

TEST_CASE("shared host: not judged where nothing is recorded, and on GPUs") {
  CHECK(shortage_of({"ddp", 2, 32, 0.008, 0.002}).empty());
  StudyRun gpu = using_cpu(0.001);
  gpu.change_info = [before = gpu.change_info](RunInfo& info) {
    before(info);
    for (RankPlace& place : info.topology)
      place.device_uuid = "GPU-1";
  };
  CHECK(shortage_of(gpu).empty());
  StudyRun without_wait = using_cpu(0.001);
  without_wait.change = [before = without_wait.change](IterationRow& row) {
    before(row);
    for (RankIteration& rank : row.ranks)
      rank[Phase::kWait] = kNotMeasured;
  };
  without_wait.change_info = [before = without_wait.change_info](RunInfo& info) {
    before(info);
    info.topology[1].host = "node1";
  };
  CHECK(shortage_of(without_wait).empty());
  CHECK(shortage_of(on_cores(using_cpu(0.008), "0")) == "oversubscribed");
}

TEST_CASE(
    "shared host: no table calls a mode slower from such runs, and each has the reservation") {
  const TestFolder folder;
  write_study(folder / "a.h5", with_cpu_time({"allreduce", 2, 32, 0.010}, 1));
  write_study(folder / "b.h5", with_cpu_time({"ddp", 2, 32, 0.020}, 0.5));
  write_study(folder / "b2.h5", with_cpu_time({"ddp", 2, 32, 0.020}, 0.75));
  write_study(folder / "c.h5", with_cpu_time({"none", 1, 32, 0.010}, 1));
  write_study(folder / "c2.h5", with_cpu_time({"none", 1, 32, 0.010}, 1));
  const RunSet set = loaded(folder);
  const std::string note =
      "shared host: a rank on host node0 got at most 50 % to 75 % of a core while it did not wait "
      "(b, b2)";
  for (const char* name : {"modes", "split", "speedup", "modes-paired", "summary"})
    CHECK_MESSAGE(contains(all_notes(printed(name, set)), note), name);
  const auto cells_of_ddp = [&](const Table& table, const char* column) {
    for (const auto& row : table.rows)
      if (row[column_of(table, "mode")].shown() == "ddp")
        return row[column_of(table, column)].shown();
    return std::string("no row");
  };
  CHECK(cells_of_ddp(printed("modes-paired", set), "verdict") == "shared host");
  CHECK(cells_of_ddp(printed("summary", set), "to_fastest") == "n/a");
  CHECK(cells_of_ddp(printed("summary", set), "efficiency_percent") == "n/a");
  CHECK(cells_of_ddp(printed("speedup", set), "remark").starts_with("shared host"));
  const auto cells = study_cells(set);
  CHECK(std::count_if(cells.begin(), cells.end(),
                      [](const StudyCell& cell) { return cell.short_of_cores; }) == 1);
}

TEST_CASE("summary: what the ratios to the fastest leave open stands in its first note") {
  const TestFolder folder;
  write_study(folder / "a.h5", {"allreduce", 2, 32, 0.010});
  write_study(folder / "b.h5", {"ddp", 2, 32, 0.020});
  CHECK(printed("summary", loaded(folder)).notes[0] ==
        "iteration: median, slowest rank [95 %]; to fastest: single runs, not tested");
  write_study(folder / "b2.h5", {"ddp", 2, 32, 0.022});
  CHECK(contains(printed("summary", loaded(folder)).notes[0], "runs differ by up to 10.0 %"));
}
