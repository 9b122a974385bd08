#pragma once

#include <filesystem>

#include "comm/exchange.h"
#include "comm/rank_transport.h"
#include "comm/session.h"

namespace gradsync::test {

/// The job the test program is a rank of.
Session& session();

/// Everything a mode needs to communicate.
struct Ranks {
  explicit Ranks(const std::string& transport_name = "mpi")
      : transports(session(), watchdog, {transport_name, "for the test"}, {}, nullptr) {}

  Watchdog& watchdog = session().watchdog();
  RankTransport transports;
  Transport& transport = transports.get();
  Exchange exchange{session(), transport, watchdog, VerifyLevel::kAll};
  int rank = session().rank(), size = session().size();
};

/// A folder all ranks share while it lives; made and removed by rank 0.
class SharedFolder {
 public:
  SharedFolder();
  ~SharedFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace gradsync::test
