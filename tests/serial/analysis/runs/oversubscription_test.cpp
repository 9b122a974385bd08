#include "analysis/runs/oversubscription.h"

#include <doctest/doctest.h>

#include "analysis/tables/registry.h"
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
  const auto cells = measured_cells(set);
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].oversubscribed != cells[1].oversubscribed);
  CHECK(cells[0].family != cells[1].family);
}
