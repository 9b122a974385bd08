// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace gradsync {

/// Exit codes of every program (sysexits.h where one fits; 80 and up are ours).
/// MPI delivers them with MPI_Abort, so all ranks of a job leave with the same one.
enum class ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,    ///< a verification or a threshold failed
  kInternal = 70,      ///< of gradsync itself
  kUsage = 64,         ///< an option, a job file or their combination
  kBadData = 65,       ///< an input file exists and is wrong
  kNoInput = 66,       ///< an input file is missing
  kEnvironment = 69,   ///< launch, binding, versions
  kCannotCreate = 73,  ///< an output exists or cannot be made
  kInputOutput = 74,   ///< a write or a read failed
  kStoppedEarly = 75,  ///< stopped on request; resume
  kNumbers = 80,       ///< NaN or infinity, or replicas that differ
  kOutOfMemory = 81,
  kHang = 86,
  kRanksDisagree = 87,
};

/// An error that a user can act on.
/// `what()` says what is wrong and where (file, option, value, rank); `fix()` says what to do about
/// it, as a command where there is one.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string fix = {})
      : std::runtime_error(what), code_(code), fix_(std::move(fix)) {}

  ExitCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }
  const std::string& fix() const { return fix_; }

 private:
  ExitCode code_;
  std::string fix_;
};

/// The text every program prints for an error: "program: what" and, on a second line, the fix.
/// Control characters are spelled out. Where something given is at fault (kUsage to kInputOutput),
/// the middle of a line that is longer than a message of ours would be is left out.
std::string describe(const std::string& program, const Error& error);

/// Turns whatever is in flight into an Error: ours as it is, std::bad_alloc and LibTorch's
/// out-of-memory text as kOutOfMemory, a failure of the file system as kInputOutput, anything else
/// as kInternal. Call it inside a catch block.
Error current_error();

/// What the program advises where memory is out, "" at first; for its main.
void set_memory_fix(const char* fix);
const char* memory_fix();

/// Prints `describe(program, error)` to stderr.
void print_error(const std::string& program, const Error& error);

/// Prints "program: warning: text" to stderr, as one write: the output of other ranks cannot cut
/// it.
void print_warning(const std::string& program, const std::string& text);

/// To be called first in a program: an error of standard output is an error at its end and not
/// SIGPIPE in the middle of work, no file that it opens gets the number of a closed standard
/// stream, and with it what is printed, and its children can be waited for.
void prepare_standard_streams();

/// Throws Error kInputOutput unless all that was printed is written.
void require_written();

/// Whether standard output is a pipe that nobody reads any more.
bool output_has_no_reader();

/// Ends the program as SIGPIPE does, which shells expect of `program | head`.
[[noreturn]] void end_by_broken_pipe();

/// Calls `body` and returns its exit code; prints an escaping error to stderr and returns its code,
/// which is kInputOutput where what was printed cannot be written. For programs without MPI; those
/// with it use `run_mpi_program`.
template <typename Body>
int run_program(const std::string& program, Body&& body) {
  prepare_standard_streams();
  try {
    const int code = body();
    if (output_has_no_reader()) end_by_broken_pipe();
    if (code == 0) require_written();
    return code;
  } catch (...) {
    const Error error = current_error();
    print_error(program, error);
    return error.exit_code();
  }
}

/// strerror(errno) of the calling thread.
std::string errno_text();

}  // namespace gradsync
