// SPDX-License-Identifier: BSD-3-Clause
#include "check/check.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "check/mpi_job.h"
#include "mpi/device_ranks.h"

namespace gradsync::check {

using test::session;

TEST_CASE("preflight's job: texts of any length arrive in order of rank") {
  MpiJob job(session(), find_launcher());
  const auto mine = std::string(static_cast<std::size_t>(100 * job.place().rank), 'x') + "end";
  const auto all = job.gather(mine);
  CHECK(all.size() == static_cast<std::size_t>(session().root() ? session().size() : 0));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    CHECK(all[rank].size() == 100 * rank + 3);
  CHECK(job.broadcast(session().root() ? "of root" : "") == "of root");
}

TEST_CASE("preflight's job: facts come with their rank and host") {
  MpiJob job(session(), find_launcher());
  const auto facts = gather_facts(job, session().rank() * 10);
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    CHECK(facts[rank].rank == static_cast<int>(rank));
    CHECK(facts[rank].facts == static_cast<int>(rank) * 10);
    CHECK(facts[rank].host == session().host());
  }
}

TEST_CASE("preflight's job: two ranks swap while the others continue") {
  MpiJob job(session(), find_launcher());
  const int last = session().size() - 1, rank = session().rank();
  if (last > 0 && (rank == 0 || rank == last)) {
    const std::vector<float> out(1000, static_cast<float>(rank + 1));
    std::vector<float> in(out.size());
    const int peer = rank == 0 ? last : 0;
    job.swap(peer, out, in);
    CHECK(in == std::vector<float>(out.size(), static_cast<float>(peer + 1)));
  }
  job.meet();
}

TEST_CASE("preflight: sums over real ranks are right, and their clocks are one machine's") {
  MpiJob job(session(), find_launcher());
  const auto links = check_links(job, {}).findings;
  const auto clocks = check_clocks(job, {}).findings;
  if (!session().root()) {
    CHECK(links.empty());
    return;
  }
  CHECK(links.at(0).outcome == (session().size() > 1 ? Outcome::kPass : Outcome::kSkip));
  CHECK(count_of(links, Outcome::kFail) + count_of(clocks, Outcome::kFail) == 0);
}

TEST_CASE("preflight: NCCL sums 64 MiB on the device, with right values and the time of a call") {
  test::FakeDevice device;
  test::FakeNccl api(device, test::kCall_s);
  const NcclTrial trial = try_nccl(session(), api, device, test::scale_on_stand_in);
  CHECK(trial.right);
  CHECK(trial.time_s == doctest::Approx(session().size() > 1 ? test::kCall_s : 0));
  CHECK(api.left == 1);
  CHECK(device.blocks() == 0);
  CHECK(api.calls == (session().size() > 1 ? 11 : 0));
}

TEST_CASE("preflight: only a log of NCCL's that is kept for it is read" * test::once()) {
  const auto unset = [] {
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"})
      ::unsetenv(name);
  };
  unset();
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_FILE", "/proc/self/status", 1);
  keep_nccl_log();
  CHECK(kept_nccl_log().empty());
  unset();
  keep_nccl_log();
  std::ofstream(std::getenv("NCCL_DEBUG_FILE")) << "NCCL INFO";
  CHECK(kept_nccl_log() == "NCCL INFO");
  unset();
}

TEST_CASE("preflight: the libraries of this process are all found" * test::once()) {
  MpiJob job(session(), find_launcher());
  const auto libraries = job.libraries();
  for (const char* name : {"gradsync", "MPI", "HDF5", "LibTorch", "C library"}) {
    const auto found = std::find_if(libraries.begin(), libraries.end(),
                                    [&](const Library& one) { return one.name == name; });
    REQUIRE_MESSAGE(found != libraries.end(), name);
    CHECK_MESSAGE(!found->path.empty(), name);
    CHECK_MESSAGE(!found->identity.empty(), name);
  }
}

}  // namespace gradsync::check
