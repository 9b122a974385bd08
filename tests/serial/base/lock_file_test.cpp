// SPDX-License-Identifier: BSD-3-Clause

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/process.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

using namespace gradsync;

namespace {

using Others = LockFile::Others;

std::string host_name() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return host;
}

void write_holder(const std::filesystem::path& path, const std::string& host, long process,
                  const std::string& job = "", int restart = 0,
                  const std::string& pid_namespace = "") {
  std::ofstream(path) << fmt::format("host {}, process {}, started 1, job {}, restart {}{}\n", host,
                                     process, job, restart,
                                     pid_namespace.empty() ? "" : ", namespace " + pid_namespace);
}

std::string refused_text(const std::filesystem::path& path, Others others = Others::kMayLive) {
  return error_text(ExitCode::kCannotCreate, [&] { LockFile(path, "run.h5", others); });
}

/// A process that holds the lock until it is killed.
pid_t start_holder(const std::filesystem::path& path) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const LockFile lock(path, "run.h5", Others::kMayLive);
    [[maybe_unused]] const auto written = ::write(ready[1], "r", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

std::size_t files_in(const TestFolder& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.path()),
                                                std::filesystem::directory_iterator()));
}

/// Slurm's variables of a job, for as long as it lives.
struct InJob {
  InJob(const char* job, const char* restart) {
    ::setenv("SLURM_JOB_ID", job, 1);
    ::setenv("SLURM_RESTART_COUNT", restart, 1);
  }
  InJob(const InJob&) = delete;
  InJob& operator=(const InJob&) = delete;
  ~InJob() {
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_RESTART_COUNT");
  }
};

}  // namespace

TEST_CASE("lock file: one holder, who is named, and nothing is left") {
  const TestFolder folder;
  const auto path = folder / "lock";
  {
    const LockFile lock(path, "run.h5", Others::kMayLive);
    const std::string text = refused_text(path);
    for (const std::string& part :
         {std::string("'run.h5' is being written"), "host " + host_name(),
          fmt::format("process {}", ::getpid()), "remove '" + path.string() + "'"})
      CHECK(text.find(part) != std::string::npos);
  }
  CHECK(files_in(folder) == 0);
  const LockFile again(path, "run.h5", Others::kMayLive);
  CHECK(files_in(folder) == 1);
}

TEST_CASE("lock file: what a killed process of this host left is replaced") {
  const TestFolder folder;
  const auto path = folder / "lock";
  const pid_t child = start_holder(path);
  refused_text(path);
  ::kill(child, SIGKILL);
  SUBCASE("as soon as it is dead") {
    // Not waited for: a zombie.
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    CHECK_NOTHROW(LockFile(path, "run.h5", Others::kMayLive));
    ::waitpid(child, nullptr, 0);
  }
  SUBCASE("when nothing is left of it") {
    ::waitpid(child, nullptr, 0);
    CHECK_NOTHROW(LockFile(path, "run.h5", Others::kMayLive));
  }
  CHECK(files_in(folder) == 0);
}

TEST_CASE("lock file: a holder in another container of this host cannot be asked") {
  const TestFolder folder;
  const auto path = folder / "lock";
  constexpr long kNoProcess = 1 << 30;
  const std::string ours = std::to_string(namespace_of("pid"));
  write_holder(path, host_name(), kNoProcess, "", 0, "1");
  refused_text(path);
  CHECK_NOTHROW(LockFile(path, "run.h5", Others::kGone));
  write_holder(path, host_name(), kNoProcess, "", 0, ours);
  CHECK_NOTHROW(LockFile(path, "run.h5", Others::kMayLive));
  const InJob requeued("7", "1");
  write_holder(path, host_name(), kNoProcess, "7", 0, "1");
  CHECK_NOTHROW(LockFile(path, "run.h5", Others::kMayLive));
}

TEST_CASE("lock file: a process that only has the number of the holder is not the holder") {
  const TestFolder folder;
  const auto path = folder / "lock";
  write_holder(path, host_name(), ::getpid());  // started at another time
  CHECK_NOTHROW(LockFile(path, "run.h5", Others::kMayLive));
}

TEST_CASE("lock file: a holder on another host cannot be asked") {
  const TestFolder folder;
  const auto path = folder / "lock";
  write_holder(path, "elsewhere", 7, "42", 0);
  const std::string text = refused_text(path);
  for (const char* part : {"host elsewhere, process 7, Slurm job 42", "remove '"})
    CHECK(text.find(part) != std::string::npos);
  {
    const InJob another("43", "5");
    refused_text(path);
  }
  {
    const InJob the_same_step("42", "0");
    refused_text(path);
  }
  SUBCASE("but the same job was requeued since") {
    const InJob requeued("42", "1");
    CHECK_NOTHROW(LockFile(path, "run.h5", Others::kMayLive));
  }
  SUBCASE("but a lock of the kernel shows that nobody is left") {
    CHECK_NOTHROW(LockFile(path, "run.h5", Others::kGone));
  }
  CHECK(files_in(folder) == 0);
}

TEST_CASE("lock file: one without a holder's name is nobody's to take") {
  const TestFolder folder;
  std::ofstream(folder / "lock") << "";
  CHECK(refused_text(folder / "lock").find("host unknown") != std::string::npos);
}

TEST_CASE("lock file: what somebody else holds by now is left alone") {
  const TestFolder folder;
  const auto path = folder / "lock";
  {
    std::optional<LockFile> lock(std::in_place, path, "run.h5", Others::kMayLive);
    LockFile moved = std::move(*lock);
    lock.reset();
    CHECK(std::filesystem::exists(path));
    write_holder(path, "elsewhere", 7);
  }
  CHECK(std::filesystem::exists(path));
}
