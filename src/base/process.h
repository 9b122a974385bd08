// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradsync {

/// How a program ended: by itself with `exit_code`, or by `signal` (then exit_code is -1).
struct ProcessResult {
  int exit_code = -1;
  int signal = 0;

  bool succeeded() const { return signal == 0 && exit_code == 0; }
  /// "exit code 3" or "signal 9 (Killed)".
  std::string text() const;
};

/// Where a program reads and writes. An empty path means: the same as ours. Output files are made
/// or emptied (`append`: or gone on with); both outputs may name the same file.
struct ProcessOptions {
  std::filesystem::path stdin_path, stdout_path, stderr_path;
  std::vector<std::string>
      environment;  ///< "NAME=value", added to that of this process, or in its place
  std::filesystem::path working_folder;
  bool append = false;
  bool own_group = false;  ///< a process group of its own: Ctrl-C reaches us and not the program
  std::function<void(pid_t)> started = {};  ///< told the program's process id once it runs
  /// Called when it has ended, before another process can get its id.
  std::function<void()> ended = {};
};

/// Receives standard output piece by piece.
using OutputConsumer = std::function<void(std::span<const std::byte>)>;

/// Runs args[0], found through PATH, with the rest as its arguments and waits for its end. No shell
/// is involved, so no character of an argument has a meaning.
/// Standard output is given to `consume` if there is one; if that throws, the program is killed and
/// the exception comes out of here. Throws Error kEnvironment naming the program if it cannot be
/// started; an end other than exit code 0 is no error here.
ProcessResult run_process(const std::vector<std::string>& args, const ProcessOptions& options = {},
                          const OutputConsumer& consume = {});

struct CapturedProcess {
  ProcessResult result;
  std::string output;
};

/// Runs a process like run_process, and returns its standard output as text.
CapturedProcess capture_process(const std::vector<std::string>& args,
                                const ProcessOptions& options = {});

/// While it lives, the thread that made it does not push another off a core when it wakes up
/// (Linux: SCHED_BATCH), and threads that it starts neither. For a thread that computes, on the
/// core of one that communicates: woken by the end of a message it would take the core before the
/// next message is on its way. Where another policy than the usual one was set, that stays.
class SchedBatchScope {
 public:
  SchedBatchScope();
  /// By the same thread.
  ~SchedBatchScope();
  SchedBatchScope(const SchedBatchScope&) = delete;
  SchedBatchScope& operator=(const SchedBatchScope&) = delete;

 private:
  bool changed_ = false;
};

/// Name of a signal without "SIG" ("TERM"), or its number.
std::string signal_name(int signal);

/// While it lives, these signals are remembered instead of ending the program (those that were
/// ignored stay ignored, as under nohup). One at a time.
class StopSignals {
 public:
  explicit StopSignals(const std::vector<int>& signals);
  /// Remembers these as well from now on.
  void add(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came last, or 0.
  int received() const;
  /// How many have come.
  int count() const;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

/// The signal that the last StopSignals of this process has received last, or 0.
int stop_signal_received();

/// While it lives, a signal does to this process what it does by default.
class DefaultSignal {
 public:
  explicit DefaultSignal(int signal) : signal_(signal) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal_, &action, &before_);
  }
  ~DefaultSignal() { sigaction(signal_, &before_, nullptr); }
  DefaultSignal(const DefaultSignal&) = delete;
  DefaultSignal& operator=(const DefaultSignal&) = delete;

 private:
  int signal_;
  struct sigaction before_ = {};
};

/// The number of the kernel's namespace of a kind ("pid", "user", "mnt") that a process is in; 0
/// where it cannot be read. Processes in different ones of kind "pid" have process numbers that say
/// nothing to each other.
std::uint64_t namespace_of(const char* kind, const std::string& process = "self");

/// Namespaces that the kernel starts with (PROC_PID_INIT_INO, PROC_USER_INIT_INO).
inline constexpr std::uint64_t kFirstPidNamespace = 0xEFFFFFFC, kFirstUserNamespace = 0xEFFFFFFD;

}  // namespace gradsync
