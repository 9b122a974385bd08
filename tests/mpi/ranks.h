#pragma once

#include <filesystem>

#include "comm/exchange.h"
#include "comm/mpi_transport.h"
#include "comm/session.h"

namespace gradsync::test {

/// The job the test program is a rank of.
Session& session();

/// Everything a mode needs to communicate.
struct Ranks {
  Watchdog watchdog{session(), 60};
  MpiTransport transport{session().world()};
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
