// SPDX-License-Identifier: BSD-3-Clause
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <stdexcept>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/process.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST_CASE("an atomic write makes the file, replaces it, and leaves nothing beside it") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "one");
  CHECK(read_text_file(folder / "a") == "one");
  write_file_atomically(folder / "a", "");
  CHECK(read_text_file(folder / "a").empty());
  CHECK(folder.entries() == 1);
}

TEST_CASE("an atomic write through a link replaces the file behind it") {
  const TestFolder folder;
  fs::create_directory(folder / "there");
  write_file_atomically(folder / "there/file", "one");
  fs::create_symlink("there/file", folder / "link");
  write_file_atomically(folder / "link", "two");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(read_text_file(folder / "there/file") == "two");
}

TEST_CASE("an atomic write that fails leaves nothing behind") {
  const TestFolder folder;
  const fs::path taken = folder / "taken";
  fs::create_directories(taken / "full");
  const std::string text =
      error_text(ExitCode::kCannotCreate, [&] { write_file_atomically(taken, "x"); });
  CHECK(contains(text, taken.string()));
  CHECK(folder.entries() == 2);
  error_text(ExitCode::kCannotCreate, [&] { write_file_atomically(folder / "no/such", "x"); });
}

TEST_CASE("a full disk is an input/output error with the path") {
  const UniqueFd full(::open("/dev/full", O_WRONLY));
  REQUIRE(full);
  const std::string text = error_text(ExitCode::kInputOutput,
                                      [&] { write_all(full.get(), bytes_of("text"), "run.h5"); });
  CHECK(contains(text, "run.h5"));
  CHECK(contains(text, "No space left on device"));
}

TEST_CASE("create_file refuses a file that exists and leaves its content") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "kept");
  error_text(ExitCode::kCannotCreate, [&] { create_file(folder / "a"); });
  CHECK(read_text_file(folder / "a") == "kept");
}

TEST_CASE("a mapped file shows the file; an empty one is empty; moving keeps the map") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "mapped");
  write_file_atomically(folder / "empty", "");
  MappedFile first(folder / "a");
  const MappedFile second(std::move(first));
  REQUIRE(second.bytes().size() == 6);
  CHECK(static_cast<char>(second.bytes()[5]) == 'd');
  CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move): what is left is the point
  CHECK(MappedFile(folder / "empty").bytes().empty());
}

TEST_CASE("a mapped file that is missing or a folder") {
  const TestFolder folder;
  error_text(ExitCode::kNoInput, [&] { MappedFile(folder / "none"); });
  error_text(ExitCode::kBadData, [&] { MappedFile(folder.path()); });
}

TEST_CASE("what is no regular file is named and not waited for") {
  const TestFolder folder;
  const fs::path fifo = folder / "fifo", loop = folder / "loop";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  fs::create_symlink("loop", loop);
  CHECK(contains(error_text(ExitCode::kBadData, [&] { open_for_reading(fifo); }),
                 "fifo' is a FIFO, not a file"));
  CHECK(contains(error_text(ExitCode::kBadData, [&] { read_text_file(folder.path()); }),
                 "is a folder, not a file"));
  error_text(ExitCode::kBadData, [] { read_text_file("/dev/zero"); });
  error_text(ExitCode::kNoInput, [&] { open_for_reading(loop); });
  error_text(ExitCode::kNoInput, [&] { open_for_reading(folder / std::string(3000, 'x')); });
  CHECK(read_text_file("/dev/null").empty());
  // The pipe of <(command).
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  REQUIRE(::write(writing.get(), "lr = 1", 6) == 6);
  writing.reset();
  CHECK(read_text_file("/dev/fd/" + std::to_string(reading.get())) == "lr = 1");
}

TEST_CASE("a text has a limit") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "12345");
  CHECK(read_text_file(folder / "a", 5) == "12345");
  CHECK(contains(error_text(ExitCode::kBadData, [&] { read_text_file(folder / "a", 4); }),
                 "more than 4 B"));
}

TEST_CASE(
    "outputs are refused before anything is written, with the line that makes them possible") {
  const TestFolder folder;
  const auto refused = [](const fs::path& path) {
    return error_text(ExitCode::kCannotCreate, [&] { require_writable(path); });
  };
  fs::create_symlink("loop", folder / "loop");
  fs::create_directory(folder / "it's a folder");
  write_file_atomically(folder / "file", "kept");
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(contains(refused(folder / "no folder/x"),
                 fmt::format("mkdir -p '{}'", (folder / "no folder").string())));
  CHECK(contains(refused(folder / "it's a folder"), "it is a folder"));
  CHECK(contains(refused(folder / "fifo"), "it is a FIFO"));
  CHECK(contains(refused("/dev/full"), "it is a device"));
  CHECK(contains(refused("/dev/stdin"), "it is a link of the system"));
  for (const char* name : {"loop", "loop/x", "file/x"})
    refused(folder / name);
  refused(folder / std::string(3000, 'x'));
  require_writable(folder / "file");
  require_writable(folder / "new");
  require_writable("");
  require_writable("-");
  // A device keeps its name.
  error_text(ExitCode::kCannotCreate, [&] { write_file_atomically(folder / "fifo", "x"); });
  CHECK(fs::is_fifo(folder / "fifo"));
  CHECK(contains(
      error_text(ExitCode::kCannotCreate, [&] { require_free(folder / "file", "choose another"); }),
      "exists | choose another"));
  error_text(ExitCode::kCannotCreate, [&] { require_free(folder / "loop", ""); });
  CHECK(folder.entries() == 4);
}

TEST_CASE("a descriptor is closed when its owner goes, and only then") {
  struct stat status {};
  int number = -1;
  {
    UniqueFd file(::open("/dev/null", O_RDONLY));
    number = file.get();
    const UniqueFd other(std::move(file));
    CHECK_FALSE(file);
    CHECK(::fstat(number, &status) == 0);
  }
  CHECK(::fstat(number, &status) != 0);
}

TEST_CASE("the folder of a test is new, and no other user may write into it") {
  const TestFolder one, other;
  CHECK(one.path() != other.path());
  struct stat status {};
  REQUIRE(::lstat(one.path().c_str(), &status) == 0);
  CHECK(S_ISDIR(status.st_mode));
  CHECK((status.st_mode & ALLPERMS) == S_IRWXU);
  CHECK(status.st_uid == ::geteuid());
}

TEST_CASE("random suffixes are twelve hex digits and differ") {
  const std::string suffix = random_suffix();
  CHECK(suffix.size() == 12);
  CHECK(suffix.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(suffix != random_suffix());
}

}  // namespace
}  // namespace gradsync

namespace gradsync {
namespace {

TEST_CASE("arguments reach the program as they are, with no shell between") {
  const CapturedProcess echo = capture_process({"printf", "%s|", "$HOME", "a b", "'\"*;", ""});
  CHECK(echo.result.succeeded());
  CHECK(echo.output == "$HOME|a b|'\"*;||");
}

TEST_CASE("the end of a program is reported as it was") {
  CHECK(run_process({"sh", "-c", "exit 7"}).exit_code == 7);
  const ProcessResult killed = run_process({"sh", "-c", "kill -TERM $$"});
  CHECK(killed.signal == SIGTERM);
  CHECK_FALSE(killed.succeeded());
  CHECK(contains(killed.text(), "signal 15"));
}

TEST_CASE("a program that does not exist is named") {
  const std::string text =
      error_text(ExitCode::kEnvironment, [] { run_process({"gradsync-no-such-program"}); });
  CHECK(contains(text, "gradsync-no-such-program"));
}

TEST_CASE("input, outputs, environment and folder are as asked") {
  const TestFolder folder;
  write_file_atomically(folder / "in", "from the file");
  ProcessOptions options;
  options.stdin_path = folder / "in";
  options.stdout_path = folder / "out";
  options.stderr_path = folder / "err";
  options.environment = {"GRADSYNC_TEST_WORD=here"};
  options.working_folder = folder.path();
  CHECK(run_process({"sh", "-c", "cat; ls; echo $GRADSYNC_TEST_WORD >&2"}, options).succeeded());
  CHECK(read_text_file(folder / "out") == "from the fileerr\nin\nout\n");
  CHECK(read_text_file(folder / "err") == "here\n");
}

TEST_CASE("both outputs may share one file") {
  const TestFolder folder;
  ProcessOptions options;
  options.stdout_path = options.stderr_path = folder / "log";
  run_process({"sh", "-c", "echo one; echo two >&2; echo three"}, options);
  CHECK(read_text_file(folder / "log") == "one\ntwo\nthree\n");
  // The program has no third one of it.
  const auto open_files = [&] {
    run_process({"sh", "-c", "echo /proc/self/fd/*"}, options);
    return read_text_file(folder / "log");
  };
  const std::string shared = open_files();
  options.stderr_path = folder / "err";
  CHECK(open_files() == shared);
}

TEST_CASE("an output that is a link, or one of two names, is left alone") {
  const TestFolder folder;
  write_file_atomically(folder / "other", "kept");
  fs::create_symlink("other", folder / "link");
  fs::create_hard_link(folder / "other", folder / "second");
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  for (const char* name : {"link", "second", "fifo"}) {
    ProcessOptions options;
    options.stdout_path = folder / name;
    error_text(ExitCode::kCannotCreate, [&] { run_process({"echo", "overwritten"}, options); });
  }
  CHECK(read_text_file(folder / "other") == "kept");
  ProcessOptions options;
  options.stdout_path = "/dev/null";
  CHECK(run_process({"echo", "x"}, options).succeeded());
}

TEST_CASE("a program is not reaped before its end was told, and takes SIGPIPE as usual") {
  pid_t started = 0;
  bool there = false;
  ProcessOptions options;
  options.started = [&](pid_t pid) { started = pid; };
  options.ended = [&] { there = ::kill(started, 0) == 0; };
  CHECK(run_process({"true"}, options).succeeded());
  CHECK(there);
  std::signal(SIGPIPE, SIG_IGN);
  CHECK(run_process({"sh", "-c", "kill -PIPE $$"}).signal == SIGPIPE);
  std::signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("a variable that exists is replaced, not doubled") {
  ProcessOptions options;
  options.environment = {"HOME=/elsewhere"};
  const std::string output = "\n" + capture_process({"env"}, options).output;
  CHECK(contains(output, "\nHOME=/elsewhere\n"));
  CHECK(output.find("\nHOME=") == output.rfind("\nHOME="));
}

TEST_CASE("a missing input or working folder is not blamed on the program") {
  ProcessOptions options;
  options.stdin_path = "/nowhere/in";
  error_text(ExitCode::kNoInput, [&] { run_process({"true"}, options); });
  options = {};
  options.working_folder = "/nowhere";
  error_text(ExitCode::kNoInput, [&] { run_process({"true"}, options); });
}

TEST_CASE("a consumer that throws ends a program that would never end") {
  const auto refuse = [](std::span<const std::byte>) { throw std::runtime_error("enough"); };
  CHECK_THROWS_WITH(run_process({"yes"}, {}, refuse), "enough");
}

}  // namespace
}  // namespace gradsync
