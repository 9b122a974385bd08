#include "mpi/ranks.h"

#include <unistd.h>

#include <string>

namespace gradsync::test {

SharedFolder::SharedFolder() {
  int pid = getpid();
  MPI_Bcast(&pid, 1, MPI_INT, 0, session().world());
  path_ = std::filesystem::temp_directory_path() / ("gradsync-test-" + std::to_string(pid));
  if (session().root()) std::filesystem::create_directories(path_);
  MPI_Barrier(session().world());
}

SharedFolder::~SharedFolder() {
  MPI_Barrier(session().world());
  std::error_code ignored;
  if (session().root()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradsync::test
