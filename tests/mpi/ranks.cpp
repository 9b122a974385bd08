// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/ranks.h"

#include <array>
#include <climits>
#include <string>

#include "transport/rank_transport.h"

namespace gradsync::test {

namespace {

constexpr const char *kOnce = "once", *kSeveral = "several ranks", *kMany = "many ranks",
                     *kAtMostTwo = "at most two ranks";

/// The node that a rank stands for: 1 + 1, 2 + 1, 4 + 4 ranks, or 5 + 3 of 8.
int emulated_node(int rank, int ranks, bool unequal) {
  return unequal ? rank > ranks / 2 : rank / ((ranks + 1) / 2);
}

}  // namespace

doctest::test_suite once() {
  return {kOnce};
}

doctest::test_suite several_ranks() {
  return {kSeveral};
}

doctest::test_suite many_ranks() {
  return {kMany};
}

doctest::test_suite at_most_two_ranks() {
  return {kAtMostTwo};
}

void choose_suites(doctest::Context& context, int ranks) {
  const auto leave_out = [&](const char* suite) { context.addFilter("test-suite-exclude", suite); };
  if (ranks > 3) context.addFilter("test-suite", kMany);
  leave_out(ranks == 1 ? kSeveral : kOnce);
  if (ranks == 1) leave_out(kMany);
  if (ranks > 2) leave_out(kAtMostTwo);
}

RanksTransport::RanksTransport(Watchdog& watchdog, const std::string& name) {
  if (!name.starts_with("two-level")) {
    by_name_.emplace(session(), watchdog, TransportChoice{name, "for the test"}, DeviceChoice{},
                     nullptr);
    return;
  }
  const int node = emulated_node(session().rank(), session().size(), name != "two-level");
  MPI_Comm_split(session().world(), node, session().rank(), &node_);
  two_level_ = std::make_unique<TwoLevelTransport>(
      session().world(), node_, [](MPI_Comm lane) -> std::unique_ptr<Transport> {
        if (lane == MPI_COMM_NULL) return nullptr;
        return std::make_unique<RingTransport>(session(), lane);
      });
}

RanksTransport::~RanksTransport() {
  two_level_.reset();
  if (node_ != MPI_COMM_NULL) MPI_Comm_free(&node_);
}

SharedFolder::SharedFolder() {
  std::array<char, PATH_MAX> path{};
  session().together([&] {
    if (session().root()) made_.emplace().path().string().copy(path.data(), path.size() - 1);
  });
  MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, session().world());
  path_ = path.data();
}

SharedFolder::~SharedFolder() {
  MPI_Barrier(session().world());
}

}  // namespace gradsync::test
