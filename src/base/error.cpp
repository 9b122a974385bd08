// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>

#include <fmt/format.h>

#include "base/memory.h"
#include "base/parse.h"

namespace gradsync {

namespace {

const char* advised_memory_fix = "";
bool output_was_closed = false;

/// Each line of `text` without its middle where it is long.
std::string with_short_lines(const std::string& text) {
  constexpr std::size_t kMost = 480, kHead = 300, kTail = 120;
  std::string result;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (line.size() > kMost)
      result += fmt::format("{} […{} bytes…] {}", with_escaped_bytes(line.substr(0, kHead)),
                            line.size() - kHead - kTail,
                            with_escaped_bytes(line.substr(line.size() - kTail)));
    else
      result += line;
    if (end < rest.size()) result += '\n';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return result;
}

}  // namespace

std::string describe(const std::string& program, const Error& error) {
  const bool quotes = error.code() >= ExitCode::kUsage && error.code() <= ExitCode::kInputOutput;
  const std::string what = program + ": " + error.what();
  const std::string fix = error.fix().empty() ? "" : "\n  fix: " + error.fix();
  return printable((quotes ? with_short_lines(what) : what) + fix);
}

void set_memory_fix(const char* fix) {
  advised_memory_fix = fix;
}

const char* memory_fix() {
  return advised_memory_fix;
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ExitCode::kOutOfMemory, "out of memory", advised_memory_fix);
  } catch (const std::filesystem::filesystem_error& error) {
    return Error(ExitCode::kInputOutput, fmt::format("cannot use '{}': {}", error.path1().string(),
                                                     error.code().message()));
  } catch (const std::exception& error) {
    if (tells_out_of_memory(error.what()))
      return Error(ExitCode::kOutOfMemory, error.what(), advised_memory_fix);
    return Error(ExitCode::kInternal, std::string("unexpected: ") + error.what());
  } catch (...) {
    return Error(ExitCode::kInternal, "unexpected exception of unknown type");
  }
}

void print_error(const std::string& program, const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", describe(program, error).c_str());
}

void print_warning(const std::string& program, const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: warning: %s\n", program.c_str(), printable(text).c_str());
}

void prepare_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  // Where a parent ignores it, the exit codes of our own children are lost.
  std::signal(SIGCHLD, SIG_DFL);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    output_was_closed |= stream == STDOUT_FILENO;
    // The lowest number that is free is this one.
    if (::open(stream == STDOUT_FILENO ? "/dev/full" : "/dev/null", O_RDWR) != stream) std::abort();
  }
}

void require_written() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout) return;
  throw Error(ExitCode::kInputOutput,
              output_was_closed ? "standard output is closed: what was to be printed is lost"
                                : "standard output cannot be written: what was printed is lost",
              "write it to a disk with free space, or leave it out with --quiet");
}

bool output_has_no_reader() {
  std::cout.flush();
  std::fflush(stdout);
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return (std::ferror(stdout) != 0 || !std::cout) && ::poll(&output, 1, 0) == 1 &&
         (output.revents & POLLERR) != 0;
}

void end_by_broken_pipe() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  std::abort();
}

std::string errno_text() {
  return std::strerror(errno);
}

}  // namespace gradsync
