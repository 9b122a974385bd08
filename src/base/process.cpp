// SPDX-License-Identifier: BSD-3-Clause
#include "base/process.h"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

extern char** environ;

namespace gradsync {

namespace {

namespace fs = std::filesystem;

/// The parts of posix_spawn's file actions used here.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void connect(const UniqueFd& file, int target) {
    if (file) posix_spawn_file_actions_adddup2(&actions_, file.get(), target);
  }
  void change_folder(const fs::path& folder) {
    if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

/// The attributes of posix_spawn used here.
class Attributes {
 public:
  explicit Attributes(bool own_group) {
    posix_spawnattr_init(&attributes_);
    // Ignored by us (prepare_standard_streams), which a program would inherit.
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setflags(
        &attributes_,
        static_cast<short>(POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0)));
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

/// A started program. Killed and reaped if it was not waited for.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  ProcessResult wait() {
    int status = 0;
    pid_t ended = 0;
    do
      ended = ::waitpid(pid_, &status, 0);
    while (ended < 0 && errno == EINTR);
    pid_ = 0;
    if (ended < 0) return {-1, 0};  // how it ended is not known
    if (WIFSIGNALED(status)) return {-1, WTERMSIG(status)};
    return {WEXITSTATUS(status), 0};
  }

 private:
  pid_t pid_;
};

UniqueFd input_of(const fs::path& path) {
  return path.empty() ? UniqueFd() : open_for_reading(path);
}

UniqueFd output_to(const fs::path& path, bool keep) {
  if (path.empty()) return UniqueFd();
  // Appending lets two descriptors of one file not overwrite each other. In a folder that others
  // can write the name may be a link to a file of ours.
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!file)
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot create '{}': {}", path.string(), errno_text()),
                errno == ELOOP ? "remove that link" : "");
  struct stat status {};
  const bool known = ::fstat(file.get(), &status) == 0;
  if (!known || !(S_ISCHR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_nlink == 1)))
    throw Error(
        ExitCode::kCannotCreate,
        fmt::format("cannot write '{}': it is no file, or one of several names", path.string()),
        "remove that name");
  if (!keep && ::ftruncate(file.get(), 0) != 0 && S_ISREG(status.st_mode))
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot empty '{}': {}", path.string(), errno_text()));
  ::fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

bool same_variable(const std::string& setting, const char* other) {
  const std::size_t name_length = setting.find('=') + 1;
  return name_length > 0 && std::strncmp(setting.c_str(), other, name_length) == 0;
}

/// Our environment with `additions` in place of variables of the same name.
std::vector<std::string> merged_environment(const std::vector<std::string>& additions) {
  std::vector<std::string> merged = additions;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    bool replaced = false;
    for (const std::string& setting : additions)
      replaced |= same_variable(setting, *entry);
    if (!replaced) merged.emplace_back(*entry);
  }
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void require_folder(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  throw Error(ExitCode::kNoInput, fmt::format("'{}' is not a folder", folder.string()));
}

pid_t spawn(std::vector<std::string> args, const ProcessOptions& options, UniqueFd captured) {
  if (args.empty()) throw Error(ExitCode::kInternal, "run_process: no program named");
  require_folder(options.working_folder);
  const UniqueFd input = input_of(options.stdin_path);
  const UniqueFd output =
      captured ? std::move(captured) : output_to(options.stdout_path, options.append);
  const bool shared = !options.stderr_path.empty() && options.stderr_path == options.stdout_path;
  const UniqueFd errors = shared ? UniqueFd(::fcntl(output.get(), F_DUPFD_CLOEXEC, 3))
                                 : output_to(options.stderr_path, options.append);

  FileActions actions;
  actions.connect(input, STDIN_FILENO);
  actions.connect(output, STDOUT_FILENO);
  actions.connect(errors, STDERR_FILENO);
  actions.change_folder(options.working_folder);

  std::vector<std::string> environment = merged_environment(options.environment);
  const Attributes attributes(options.own_group);
  pid_t pid = 0;
  const int code = posix_spawnp(&pid, args[0].c_str(), actions.get(), attributes.get(),
                                pointers_to(args).data(), pointers_to(environment).data());
  if (code == 0) return pid;
  throw Error(ExitCode::kEnvironment,
              fmt::format("cannot run '{}': {}", args[0], std::strerror(code)),
              code == ENOENT ? fmt::format("install '{}' or add its folder to PATH", args[0]) : "");
}

}  // namespace

std::string ProcessResult::text() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", exit_code);
}

ProcessResult run_process(const std::vector<std::string>& args, const ProcessOptions& options,
                          const OutputConsumer& consume) {
  std::array<int, 2> ends = {-1, -1};
  if (consume && ::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ExitCode::kEnvironment, "cannot make a pipe: " + errno_text());
  const UniqueFd reading(ends[0]);
  const pid_t pid = spawn(args, options, UniqueFd(ends[1]));
  Child child(pid);
  if (options.started) options.started(pid);
  std::vector<std::byte> buffer(consume ? 1 << 16 : 0);
  while (consume) {
    const std::size_t count = read_some(reading.get(), buffer, args[0] + "'s output");
    if (count == 0) break;
    consume(std::span(buffer).first(count));
  }
  if (options.ended) {
    siginfo_t ignored{};
    while (::waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
    options.ended();
  }
  return child.wait();
}

CapturedProcess capture_process(const std::vector<std::string>& args,
                                const ProcessOptions& options) {
  CapturedProcess captured;
  captured.result = run_process(args, options, [&](std::span<const std::byte> bytes) {
    captured.output.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return captured;
}

namespace {

constexpr int kThisThread = 0;

bool set_policy(int policy) {
  const sched_param no_priority{};
  return sched_setscheduler(kThisThread, policy, &no_priority) == 0;
}

}  // namespace

SchedBatchScope::SchedBatchScope()
    : changed_(sched_getscheduler(kThisThread) == SCHED_OTHER && set_policy(SCHED_BATCH)) {}

SchedBatchScope::~SchedBatchScope() {
  if (changed_) set_policy(SCHED_OTHER);
}

namespace {

// A signal handler can reach nothing but a global. Threads may handle signals at the same time.
std::atomic<int> signal_received{0}, signals_counted{0};
static_assert(std::atomic<int>::is_always_lock_free, "or a handler could wait for itself");

void remember(int signal) {
  signal_received = signal;
  ++signals_counted;
}

}  // namespace

std::string signal_name(int signal) {
  switch (signal) {
    case SIGHUP:
      return "HUP";
    case SIGINT:
      return "INT";
    case SIGPIPE:
      return "PIPE";
    case SIGTERM:
      return "TERM";
    case SIGUSR1:
      return "USR1";
    default:
      return std::to_string(signal);
  }
}

StopSignals::StopSignals(const std::vector<int>& signals) {
  signal_received = 0;
  signals_counted = 0;
  add(signals);
}

void StopSignals::add(const std::vector<int>& signals) {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const int signal : signals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // Programs ignore SIGPIPE themselves.
    if (before.sa_handler == SIG_IGN && signal != SIGPIPE) continue;
    sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, before);
  }
}

StopSignals::~StopSignals() {
  for (const auto& [signal, before] : before_)
    sigaction(signal, &before, nullptr);
}

int StopSignals::received() const {
  return signal_received;
}

int stop_signal_received() {
  return signal_received;
}

int StopSignals::count() const {
  return signals_counted;
}

std::uint64_t namespace_of(const char* kind, const std::string& process) {
  struct stat found {};
  const std::string path = "/proc/" + process + "/ns/" + kind;
  return ::stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

}  // namespace gradsync
