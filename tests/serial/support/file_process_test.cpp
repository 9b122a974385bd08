#include <csignal>
#include <stdexcept>

#include <doctest/doctest.h>

#include "serial/expect_error.h"
#include "serial/test_folder.h"
#include "support/process.h"

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
