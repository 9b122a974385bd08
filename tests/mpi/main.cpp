// SPDX-License-Identifier: BSD-3-Clause
// Runs every test case on all ranks together; rank 0 reports, another rank's output is shown only
// when it failed there.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <iostream>
#include <sstream>

#include <doctest/doctest.h>

#include "mpi/ranks.h"

namespace gradsync::test {

namespace {
Session* current = nullptr;
}

Session& session() {
  return *current;
}

}  // namespace gradsync::test

#ifdef __SANITIZE_ADDRESS__
// The libraries that MPI_Finalize would unload stay, so that a leak can be told by its library.
extern "C" int dlclose(void*) noexcept {
  return 0;
}
#endif

int main(int argc, char** argv) {
  // More ranks than cores: they wait long for each other.
  gradsync::WatchLimits limits;
  limits.timeout_s = limits.start_s = 300;
  gradsync::Session session(argc, argv, "tests/mpi", limits);
  gradsync::test::current = &session;
  doctest::Context context(argc, argv);
  gradsync::test::choose_suites(context, session.size());
  std::ostringstream kept;
  if (!session.root()) context.setCout(&kept);
  int mine = context.run(), worst = 0;
  if (mine != 0 && !session.root()) std::cerr << session.place() << " failed:\n" << kept.str();
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, session.world());
  if (session.root() && mine == 0 && worst != 0)
    std::printf("FAIL another rank: see its output above\n");
  return worst;
}
