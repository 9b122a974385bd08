#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
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
};

/// Runs args[0], found through PATH, with the rest as its arguments and waits for its end. No shell
/// is involved, so no character of an argument has a meaning.
/// Throws Error kEnvironment naming the program if it cannot be started; an end other than exit
/// code 0 is no error here.
ProcessResult run_process(const std::vector<std::string>& args, const ProcessOptions& options = {});

/// Receives standard output piece by piece.
using OutputConsumer = std::function<void(std::span<const std::byte>)>;

/// As above, with standard output given to `consume`. If `consume` throws, the program is killed
/// and the exception comes out of here.
ProcessResult run_process(const std::vector<std::string>& args, const ProcessOptions& options,
                          const OutputConsumer& consume);

struct CapturedProcess {
  ProcessResult result;
  std::string output;
};

/// As above, with standard output as text.
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

}  // namespace gradsync
