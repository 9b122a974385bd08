#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <iostream>

#include <doctest/doctest.h>

#include "base/error.h"
#include "record/journal.h"
#include "record/reader.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

namespace {

/// How a child that runs `body` and leaves by exit() ends: its exit code, or 1000 + its signal.
int ending_of(const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) std::exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Instead of the exit code, for a message that names no file of the run.
constexpr int kNamesNoFile = 1;

int code_of_error(const Error& error) {
  const bool names_file = std::string_view(error.what()).find("run.h5") != std::string_view::npos;
  return names_file ? error.exit_code() : kNamesNoFile;
}

int finish_and_report(Recorder& recorder) {
  try {
    recorder.finish(RunStatus::kComplete);
    return 0;
  } catch (const Error& error) {
    return code_of_error(error);
  }
}

std::size_t count_temporaries(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.path().string().find(".tmp-") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("hdf5: a limit on the file's size at any point: exit 74, no crash, the journal whole") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  write_sample(output, {});
  const auto needed = std::filesystem::file_size(output);
  std::filesystem::remove(output);
  for (rlim_t limit = needed / 8; limit < needed; limit += needed / 8) {
    const int ending = ending_of([&] {
      Recorder recorder(output, sample_info({}));
      record_sample(recorder, {});
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit bytes{limit, limit};
      setrlimit(RLIMIT_FSIZE, &bytes);
      return finish_and_report(recorder);
    });
    CHECK(ending == static_cast<int>(ExitCode::kInputOutput));
    CHECK_FALSE(std::filesystem::exists(output));
    CHECK(count_temporaries(folder.path()) == 0);
    CHECK(open_run(journal_path(output))->iterations() == 12);
    std::filesystem::remove(journal_path(output));
  }
}

TEST_CASE("hdf5: a full disk at any point: exit 74, no crash, the journal whole") {
  const TestFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=160k") != 0) {
    MESSAGE("SKIP: a small disk cannot be mounted here (needs root): " << errno_text());
    return;
  }
  std::size_t full = 0;
  for (std::size_t filler = 0; filler < 150000; filler += 4096) {
    write_plainly(folder / "filler", std::string(filler, 'x'));
    const auto output = folder / "run.h5";
    const int ending = ending_of([&] {
      try {
        Recorder recorder(output, sample_info({}));
        record_sample(recorder, {});
        return finish_and_report(recorder);
      } catch (const Error& error) {
        return code_of_error(error);
      }
    });
    CAPTURE(ending);
    CHECK((ending == 0 || ending == static_cast<int>(ExitCode::kInputOutput)));
    CHECK(std::filesystem::exists(output) == (ending == 0));
    CHECK(count_temporaries(folder.path()) == 0);
    if (ending == 0) CHECK(open_run(output)->iterations() == 12);
    if (ending != 0) ++full;
    if (ending != 0 && std::filesystem::exists(journal_path(output)))
      CHECK_NOTHROW(open_run(journal_path(output)));
    std::filesystem::remove(output);
    std::filesystem::remove(journal_path(output));
  }
  CHECK(full > 5);
  umount(folder.path().c_str());
}

namespace {

bool knows_no_replace = true;

}  // namespace

/// In place of the C library's: as on a network file system that knows no RENAME_NOREPLACE.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (knows_no_replace)
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  errno = EINVAL;
  return -1;
}

TEST_CASE("hdf5: a file system without RENAME_NOREPLACE gets the run file, and keeps another's") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  knows_no_replace = false;
  write_sample(output, {});
  CHECK(open_run(output)->iterations() == 12);
  CHECK(count_temporaries(folder.path()) == 0);
  const auto late = folder / "late.h5";
  Recorder recorder(late, sample_info({}));
  write_plainly(late, "another's");
  CHECK_THROWS_AS(recorder.finish(RunStatus::kComplete), Error);
  CHECK(std::filesystem::file_size(late) == 9);
  knows_no_replace = true;
}
