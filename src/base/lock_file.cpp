// SPDX-License-Identifier: BSD-3-Clause

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/launcher.h"
#include "base/parse.h"
#include "base/process.h"
#include "base/ranges.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

constexpr long kXfsMagic = 0x58465342, kZfsMagic = 0x2fc12fc1;  // not in linux/magic.h
constexpr int kAttempts = 20;  // each lost to another process that came or went meanwhile

/// Who holds a lock, as the file has it: "host n1, process 4711, started 12345, job 7, restart 0,
/// namespace 4026531836".
struct Holder {
  std::string host;
  std::int64_t process = 0;
  std::string started;  ///< in ticks since the host's start: a later process may get the number
  std::string job;      ///< of Slurm; empty outside
  std::int64_t restart = 0;
  std::string pid_namespace;  ///< that `process` is a number of; empty: not known
};

std::int64_t number(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// State and start time of a process; empty if there is none.
struct ProcessFacts {
  std::string state, started;
};

ProcessFacts process_facts(std::int64_t process) {
  try {
    const std::string text = read_text_file(fmt::format("/proc/{}/stat", process));
    // The name of the program, in parentheses, may hold anything.
    const auto fields = split_list(text.substr(text.rfind(')') + 2), ' ');
    return {fields.at(0), fields.at(19)};
  } catch (const std::exception&) {
    return {};
  }
}

Holder ourselves() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::int64_t process = ::getpid();
  return {host.data(),
          process,
          process_facts(process).started,
          variable("SLURM_JOB_ID"),
          number(variable("SLURM_RESTART_COUNT")),
          fmt::format("{}", namespace_of("pid"))};
}

std::string text_of(const Holder& holder) {
  return fmt::format("host {}, process {}, started {}, job {}, restart {}, namespace {}\n",
                     holder.host, holder.process, holder.started, holder.job, holder.restart,
                     holder.pid_namespace);
}

/// The word behind `name`; empty if it is not there.
std::string word_behind(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + ' ');
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return text.substr(begin, text.find_first_of(",\n", begin) - begin);
}

Holder holder_in(const std::string& text) {
  return {word_behind(text, "host"),
          number(word_behind(text, "process")),
          word_behind(text, "started"),
          word_behind(text, "job"),
          number(word_behind(text, "restart")),
          word_behind(text, "namespace")};
}

/// Its number may have gone to another process, and a zombie writes nothing any more.
bool lives(const Holder& holder) {
  if (::kill(static_cast<pid_t>(holder.process), 0) != 0 && errno == ESRCH) return false;
  const ProcessFacts facts = process_facts(holder.process);
  if (facts.state.empty()) return true;  // it cannot be looked at
  return facts.state != "Z" && facts.state != "X" && facts.started == holder.started;
}

bool is_gone(const Holder& holder, const Holder& us) {
  if (holder.process <= 0) return false;
  // In a container of this host the number may be that of no process here.
  const bool one_namespace =
      holder.pid_namespace.empty() || holder.pid_namespace == us.pid_namespace;
  if (holder.host == us.host && one_namespace) return !lives(holder);
  return !holder.job.empty() && holder.job == us.job && holder.restart < us.restart;
}

std::string read_or_nothing(const fs::path& path) {
  try {
    return read_text_file(path);
  } catch (const Error&) {
    return {};
  }
}

[[noreturn]] void refuse(const fs::path& path, const fs::path& what, const std::string& text) {
  const Holder holder = holder_in(text);
  const std::string job = holder.job.empty() ? "" : fmt::format(", Slurm job {}", holder.job);
  throw Error(
      ExitCode::kCannotCreate,
      fmt::format("'{}' is being written by another job (host {}, process {}{})", what.string(),
                  holder.host.empty() ? "unknown" : holder.host, holder.process, job),
      fmt::format("wait for that job to end, or choose another --output; if it was killed "
                  "on that host, remove '{}'",
                  path.string()));
}

/// Suffix of files that are this process's own.
std::string suffix_of(const Holder& us) {
  return fmt::format("{}.{}.{}", us.host, us.process, us.pid_namespace);
}

/// A file of our own beside `path`, on the disk before anybody can see it under that name.
TemporaryFile written_beside(const fs::path& path, const Holder& us, const std::string& text) {
  const fs::path beside = fmt::format("{}.{}", path.string(), suffix_of(us));
  ::unlink(beside.c_str());  // of a process with our number that was killed
  UniqueFd file = create_file(beside);
  TemporaryFile owned(beside);
  write_all(file.get(), std::as_bytes(std::span(text)), beside);
  close_file(std::move(file), beside);
  owned.keep();
  return TemporaryFile(beside);
}

/// False if the file is there already.
bool make(const fs::path& path, const Holder& us, const std::string& text) {
  const TemporaryFile ours = written_beside(path, us, text);
  if (::link(ours.path().c_str(), path.c_str()) == 0) return true;
  // NFS repeats a request whose answer was lost: the link that is there may be ours.
  struct stat status {};
  if (errno == EEXIST) return ::stat(ours.path().c_str(), &status) == 0 && status.st_nlink == 2;
  // A file system without links: the text comes a moment after the file.
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file && errno == EEXIST) return false;
  if (!file)
    throw Error(creation_failure(),
                fmt::format("cannot make '{}': {}", path.string(), errno_text()));
  write_all(file.get(), std::as_bytes(std::span(text)), path);
  return true;
}

/// Removes the file of a holder that is gone; puts back that of another process, which was faster.
void remove_left(const fs::path& path, const Holder& us, const std::string& left) {
  const fs::path taken = fmt::format("{}.{}.left", path.string(), suffix_of(us));
  if (::rename(path.c_str(), taken.c_str()) != 0) return;
  const TemporaryFile removed(taken);
  if (read_or_nothing(taken) != left) ::link(taken.c_str(), path.c_str());
}

}  // namespace

bool locks_reach_everyone(int fd) {
  constexpr std::array<long, 6> kOfOneHost = {EXT4_SUPER_MAGIC,      BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
                                              OVERLAYFS_SUPER_MAGIC, kXfsMagic,         kZfsMagic};
  struct statfs found {};
  return ::fstatfs(fd, &found) == 0 && contains(kOfOneHost, static_cast<long>(found.f_type));
}

LockFile::LockFile(fs::path path, const fs::path& what, Others others) : path_(std::move(path)) {
  const Holder us = ourselves();
  text_ = text_of(us);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (make(path_, us, text_)) return;
    const std::string held = read_or_nothing(path_);
    if (held.empty() && !fs::exists(path_)) continue;  // it has just gone
    if (others == Others::kMayLive && !is_gone(holder_in(held), us)) refuse(path_, what, held);
    remove_left(path_, us, held);
  }
  refuse(path_, what, read_or_nothing(path_));
}

LockFile::LockFile(LockFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), text_(std::move(other.text_)) {}

LockFile::~LockFile() {
  if (!path_.empty() && read_or_nothing(path_) == text_) ::unlink(path_.c_str());
}

}  // namespace gradsync
