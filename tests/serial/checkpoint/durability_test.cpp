// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <span>
#include <thread>

#include <doctest/doctest.h>

#include "base/error.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "record/journal.h"
#include "record/reader.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::testing;

// What a power cut leaves at worst: of a file what was written before its last fsync or fdatasync,
// of a folder the names that it held at its last fsync. tests/soak/crash.py tries what may be left
// otherwise, of real runs.

namespace {

namespace fs = std::filesystem;

/// While it lives, notes what the test program makes durable.
class DurableState {
 public:
  DurableState() { current = this; }
  ~DurableState() { current = nullptr; }
  DurableState(const DurableState&) = delete;
  DurableState& operator=(const DurableState&) = delete;

  /// Makes in `target`, an empty folder, what is left of the files in `folder` after a power cut.
  void crash(const fs::path& folder, const fs::path& target) const {
    const auto names = folders_.find(folder);
    if (names == folders_.end()) return;
    for (const auto& [name, inode] : names->second) {
      const auto content = contents_.find(inode);
      if (folders_.contains(folder / name)) {
        fs::create_directory(target / name);
        crash(folder / name, target / name);
      } else {
        write_plainly(target / name, content == contents_.end() ? "" : content->second);
      }
    }
  }

  void note(int fd) {
    const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
    struct stat status {};
    if (::fstat(fd, &status) != 0) return;
    if (S_ISREG(status.st_mode)) {
      if (!contents_.contains(status.st_ino)) first_names_.push_back(path.filename());
      contents_[status.st_ino] = read_text_file(path);
    }
    if (!S_ISDIR(status.st_mode)) return;
    folders_[path].clear();
    for (const auto& entry : fs::directory_iterator(path))
      if (::stat(entry.path().c_str(), &status) == 0)
        folders_[path][entry.path().filename()] = status.st_ino;
  }

  /// The name of each file when it was synced for the first time.
  const std::vector<std::string>& first_names() const { return first_names_; }

  static DurableState* current;

 private:
  std::vector<std::string> first_names_;
  std::map<ino_t, std::string> contents_;
  std::map<fs::path, std::map<std::string, ino_t>> folders_;
};

DurableState* DurableState::current = nullptr;

/// A disk whose fsync does nothing: what it is asked to keep is not noted.
class IgnoredSyncs {
 public:
  IgnoredSyncs() : before_(std::exchange(DurableState::current, nullptr)) {}
  ~IgnoredSyncs() { DurableState::current = before_; }
  IgnoredSyncs(const IgnoredSyncs&) = delete;
  IgnoredSyncs& operator=(const IgnoredSyncs&) = delete;

 private:
  DurableState* before_;
};

/// The sound rows of the journal that a power cut now would leave; none where there is no journal.
std::vector<IterationRow> rows_after_crash(const DurableState& disk, const fs::path& folder) {
  const TestFolder left;
  disk.crash(folder, left.path());
  if (!fs::exists(left / "run.h5.journal")) return {};
  const auto run = open_run(left / "run.h5.journal");
  return run->rows(0, run->iterations());
}

/// Whether in `left` there are at least as many rows as were acknowledged, and those that were
/// added.
bool keeps_acknowledged(const std::vector<IterationRow>& left, const Recorder& recorder) {
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!same(left[i], sample_row({}, i))) return false;
  return static_cast<std::int64_t>(left.size()) >= recorder.acknowledged();
}

}  // namespace

// The linker takes these for the calls of all that is linked into the test program.
extern "C" int fdatasync(int fd) {
  const auto result = static_cast<int>(::syscall(SYS_fdatasync, fd));
  if (result == 0 && DurableState::current) DurableState::current->note(fd);
  return result;
}

extern "C" int fsync(int fd) {
  const auto result = static_cast<int>(::syscall(SYS_fsync, fd));
  if (result == 0 && DurableState::current) DurableState::current->note(fd);
  return result;
}

TEST_CASE("durability: a power cut at any moment keeps the rows that were acknowledged") {
  const TestFolder folder;
  const DurableState disk;
  Recorder recorder(folder / "run.h5", sample_info({}));
  for (std::size_t i = 0; i < 40; ++i) {
    recorder.add(sample_row({}, i));
    CHECK(keeps_acknowledged(rows_after_crash(disk, folder.path()), recorder));
    if (i % 7 != 6) continue;
    recorder.sync();
    CHECK(recorder.acknowledged() == static_cast<std::int64_t>(i + 1));
    CHECK(keeps_acknowledged(rows_after_crash(disk, folder.path()), recorder));
  }
}

TEST_CASE("durability: rows are acknowledged a second after the last ones without being asked") {
  const TestFolder folder;
  const DurableState disk;
  Recorder recorder(folder / "run.h5", sample_info({}));
  recorder.add(sample_row({}, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  recorder.add(sample_row({}, 1));
  CHECK(recorder.acknowledged() == 2);
  CHECK(rows_after_crash(disk, folder.path()).size() == 2);
}

TEST_CASE("durability: a disk whose fsync does nothing is seen to lose acknowledged rows") {
  const TestFolder folder;
  const DurableState disk;
  Recorder recorder(folder / "run.h5", sample_info({}));
  for (std::size_t i = 0; i < 8; ++i)
    recorder.add(sample_row({}, i));
  {
    const IgnoredSyncs ignored;
    recorder.sync();
  }
  CHECK_FALSE(keeps_acknowledged(rows_after_crash(disk, folder.path()), recorder));
  recorder.sync();
  CHECK(keeps_acknowledged(rows_after_crash(disk, folder.path()), recorder));
}

TEST_CASE("durability: files get their names only when their content is on the disk") {
  const TestFolder folder;
  const DurableState disk;
  Recorder recorder(folder / "run.h5", sample_info({}));
  CheckpointWriter writer(folder / checkpoint_name(1), {{"mode", "I64", {1}}}, {});
  writer.write(std::as_bytes(std::span("12345678", 8)));
  writer.finish();
  recorder.finish(RunStatus::kComplete);
  CHECK(disk.first_names().size() == 4);  // of the journal, its lock, the checkpoint, the run file
  for (const std::string& name : disk.first_names())
    CHECK_MESSAGE((contains(name, ".tmp-") || contains(name, ".lock.")), name);
}

TEST_CASE("durability: a published run file and a finished checkpoint survive a power cut") {
  const TestFolder folder;
  const DurableState disk;
  const fs::path checkpoints = checkpoint_folder(folder / "run.h5");
  make_checkpoint_folder(checkpoints);
  Recorder recorder(folder / "run.h5", sample_info({}));
  recorder.add(sample_row({}, 0));
  CheckpointWriter writer(checkpoints / checkpoint_name(1), {{"mode", "I64", {1}}}, {});
  writer.write(std::as_bytes(std::span("12345678", 8)));
  writer.finish();
  recorder.finish(RunStatus::kComplete);
  const TestFolder left;
  disk.crash(folder.path(), left.path());
  CHECK(open_run(left / "run.h5")->status() == RunStatus::kComplete);
  CHECK(CheckpointFile(checkpoint_folder(left / "run.h5") / checkpoint_name(1)).find("mode"));
}
