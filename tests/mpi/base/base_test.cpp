// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <doctest/doctest.h>
#include <torch/types.h>

#include "base/error.h"
#include "mpi/ranks.h"

// LibTorch's own errors for memory that ran out.

using namespace gradsync;

namespace {

template <typename Body>
ExitCode code_of(Body body) {
  try {
    body();
  } catch (...) {
    return current_error().code();
  }
  return ExitCode::kOk;
}

}  // namespace

TEST_CASE("what LibTorch throws when memory runs out ends a job as out of memory" * test::once()) {
  CHECK(code_of([] { torch::empty({std::int64_t{1} << 58}); }) == ExitCode::kOutOfMemory);
  CHECK(code_of([] {
          TORCH_CHECK_WITH(OutOfMemoryError, false,
                           "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
                           "capacity of 139.81 GiB of which 1.00 GiB is free.");
        }) == ExitCode::kOutOfMemory);
  CHECK(code_of([] { TORCH_CHECK(false, "CUDA error: out of memory"); }) == ExitCode::kOutOfMemory);
  CHECK(code_of([] { TORCH_CHECK(false, "CUDA error: misaligned address"); }) ==
        ExitCode::kInternal);
}

TEST_CASE("the ranks' folder is new, whatever another user has planted where tests write") {
  namespace fs = std::filesystem;
  // A folder with a link, under the name that a process number gives away.
  const fs::path planted =
      fs::temp_directory_path() / ("gradsync-test-" + std::to_string(::getpid()));
  const bool root = test::session().root();
  if (root) {
    REQUIRE(fs::create_directory(planted));
    fs::permissions(planted, fs::perms::all);
    fs::create_symlink("/nonexistent", planted / "net.pt");
  }
  {
    const test::SharedFolder folder;
    struct stat status {};
    REQUIRE(::lstat(folder.path().c_str(), &status) == 0);
    CHECK((status.st_mode & ALLPERMS) == S_IRWXU);
    CHECK(status.st_uid == ::geteuid());
    CHECK(fs::is_empty(folder.path()));
    if (root) CHECK(folder.path() != planted);
  }
  if (root) CHECK(fs::remove_all(planted) == 2);
}
