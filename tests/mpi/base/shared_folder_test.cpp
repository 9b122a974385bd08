#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "mpi/ranks.h"

using namespace gradsync;

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
