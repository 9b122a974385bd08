// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/session.h"
#include "exchange/exchange.h"
#include "serial/test_folder.h"
#include "transport/rank_transport.h"

namespace gradsync::test {

/// The job the test program is a rank of.
Session& session();

/// Cases that mean something on some numbers of ranks only: elsewhere they are left out, and not
/// counted as passed. TEST_CASE("title" * test::once()). On more than three ranks, an odd number of
/// uneven slices, only those run whose algorithm changes with more: rings, levels, nodes.
doctest::test_suite once();               ///< needs no ranks (but LibTorch): runs on one
doctest::test_suite several_ranks();      ///< true on one rank whatever the code does
doctest::test_suite many_ranks();         ///< on several, and on more than three as well
doctest::test_suite at_most_two_ranks();  ///< too long on more
void choose_suites(doctest::Context& context, int ranks);

/// What moves data between the ranks: a transport by its name, or for "two-level" and
/// "two-level-unequal" a TwoLevelTransport over rings, whose two nodes, equal or not, are emulated
/// on this host. Two ranks are one node where nodes are unequal.
class RanksTransport {
 public:
  RanksTransport(Watchdog& watchdog, const std::string& name);
  ~RanksTransport();
  RanksTransport(const RanksTransport&) = delete;
  RanksTransport& operator=(const RanksTransport&) = delete;

  Transport& get() { return two_level_ ? *two_level_ : by_name_->get(); }

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  std::unique_ptr<Transport> two_level_;
  std::optional<RankTransport> by_name_;
};

/// Everything a mode needs to communicate.
struct Ranks {
  explicit Ranks(const std::string& transport_name = "mpi")
      : transports(watchdog, transport_name) {}

  Watchdog& watchdog = session().watchdog();
  RanksTransport transports;
  Transport& transport = transports.get();
  Exchange exchange{session(), transport, VerifyLevel::kAll};
  int rank = session().rank(), size = session().size();
};

/// A folder all ranks share while it lives: rank 0's TestFolder.
class SharedFolder {
 public:
  SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<TestFolder> made_;  ///< on rank 0
  std::filesystem::path path_;
};

}  // namespace gradsync::test
