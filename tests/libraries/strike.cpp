// SPDX-License-Identifier: BSD-3-Clause
// Loaded with LD_PRELOAD, makes chosen calls of one rank fail, wait or end the process: the disk is
// full, a write fails, MPI_Init does not return.
//
//   STRIKE=RANK:CALL:NTH:ACTION[,…]
//     CALL    open write fsync fdatasync sync (either of the two) rename listen connect send,
//     MPI_…,
//             or a phase as the watchdog names it: "forward", "checkpoint", "collective"
//     NTH     3: the third call; 3+: that one and all after it
//     ACTION  ENOSPC EIO EADDRINUSE ECONNREFUSED: fail with this errno; sleep=SECONDS: wait first;
//             KILL STOP TERM USR1 ABRT: send this signal to itself first; exit=CODE: _exit
//   STRIKE_PATH=TEXT           calls on files count only if their path holds TEXT (default: all)
//   STRIKE_ACKNOWLEDGED=FILE   rank 0 writes there how long a journal was at each sync that
//   succeeded
//
// write includes pwrite, rename renameat2, and send sendmsg. One line on stderr, "strike: …", says
// that it has struck.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

struct Named {
  const char* name;
  int number;
};
constexpr std::array<Named, 4> kErrors = {
    {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EADDRINUSE", EADDRINUSE}, {"ECONNREFUSED", ECONNREFUSED}}};
constexpr std::array<Named, 5> kSignals = {{{"KILL", SIGKILL},
                                            {"STOP", SIGSTOP},
                                            {"TERM", SIGTERM},
                                            {"USR1", SIGUSR1},
                                            {"ABRT", SIGABRT}}};

struct Strike {
  std::string call, action;
  long nth = 1;
  bool lasts = false;
  std::atomic<long> seen{0};
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == mark)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::deque<Strike>& strikes() {
  static std::deque<Strike> all = [] {
    std::deque<Strike> mine;
    for (const std::string& text : split(variable("STRIKE"), ',')) {
      const auto parts = split(text, ':');
      if (parts.size() != 4 || std::atoi(parts[0].c_str()) != own_rank()) continue;
      Strike& strike = mine.emplace_back();
      strike.call = parts[1];
      strike.nth = std::atol(parts[2].c_str());
      strike.lasts = parts[2].back() == '+';
      strike.action = parts[3];
    }
    return mine;
  }();
  return all;
}

void tell(const char* call, const char* action) {
  char text[256];
  const int length =
      std::snprintf(text, sizeof text, "strike: rank %d, %s: %s\n", own_rank(), call, action);
  if (::syscall(SYS_write, 2, text, static_cast<std::size_t>(length)) < 0) return;
}

/// Does it; returns the errno the call is to fail with, or 0 if it is to be made.
int act(const char* call, const std::string& action) {
  tell(call, action.c_str());
  for (const Named& one : kErrors)
    if (action == one.name) return one.number;
  for (const Named& one : kSignals)
    if (action == one.name) ::raise(one.number);
  if (action.rfind("sleep=", 0) == 0)
    ::usleep(static_cast<useconds_t>(1e6 * std::atof(action.c_str() + 6)));
  if (action.rfind("exit=", 0) == 0) ::_exit(std::atoi(action.c_str() + 5));
  return 0;
}

/// To be called before each call; errno to fail with, or 0.
int struck(const char* call) {
  for (Strike& strike : strikes()) {
    if (strike.call != call) continue;
    const long count = ++strike.seen;
    if (count == strike.nth || (strike.lasts && count > strike.nth))
      return act(call, strike.action);
  }
  return 0;
}

std::string path_of(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char path[4096];
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "";
}

bool meant(const std::string& path) {
  static const std::string text = variable("STRIKE_PATH");
  return path.find(text) != std::string::npos && path.starts_with('/');
}

int struck_file(const char* call, int fd) {
  return strikes().empty() || !meant(path_of(fd)) ? 0 : struck(call);
}

template <typename Function>
Function real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (!found) std::abort();
  return reinterpret_cast<Function>(found);
}

int failed(int error) {
  errno = error;
  return -1;
}

void acknowledge(int fd) {
  static const std::string file = variable("STRIKE_ACKNOWLEDGED");
  if (file.empty() || own_rank() != 0) return;
  const std::string path = path_of(fd);
  struct stat status {};
  if (!path.ends_with(".journal") || ::fstat(fd, &status) != 0) return;
  const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (log < 0) return;
  const std::string text = std::to_string(status.st_size) + "\n";
  if (::write(log, text.data(), text.size()) < 0) std::abort();
  ::close(log);
}

int synced(const char* name, int fd) {
  for (const char* call : {"sync", name})
    if (const int error = struck_file(call, fd)) return failed(error);
  const int code = real<int (*)(int)>(name)(fd);
  if (code == 0) acknowledge(fd);
  return code;
}

/// Enough for every function of MPI that is struck: words beyond its own are not looked at.
using Word = void*;
using MpiFunction = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

}  // namespace

extern "C" {

/// src/comm/watchdog_mpi.cpp
void gradsync_enters(const char* phase) {
  struck(phase);
}

int fsync(int fd) {
  return synced("fsync", fd);
}

int fdatasync(int fd) {
  return synced("fdatasync", fd);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  if (const int error = struck_file("write", fd)) return failed(error);
  return next(fd, bytes, count);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  if (const int error = struck_file("write", fd)) return failed(error);
  return next(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  if (const int error = struck_file("write", fd)) return failed(error);
  return next(fd, bytes, count, offset);
}

int rename(const char* from, const char* to) {
  if (meant(from) || meant(to))
    if (const int error = struck("rename")) return failed(error);
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (meant(from) || meant(to))
    if (const int error = struck("rename")) return failed(error);
  return real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(
      from_folder, from, to_folder, to, flags);
}

int open(const char* path, int flags, ...) {
  static const auto next = real<int (*)(const char*, int, ...)>("open");
  std::va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0 && !strikes().empty() && meant(path))
    if (const int error = struck("open")) return failed(error);
  return next(path, flags, mode);
}

int listen(int socket, int backlog) {
  constexpr int kOfRings = 4095;  // src/transport; MPI listens with other numbers
  if (backlog == kOfRings)
    if (const int error = struck("listen")) return failed(error);
  return real<int (*)(int, int)>("listen")(socket, backlog);
}

int connect(int socket, const struct sockaddr* address, socklen_t length) {
  if (const int error = struck("connect")) return failed(error);
  return real<int (*)(int, const struct sockaddr*, socklen_t)>("connect")(socket, address, length);
}

ssize_t send(int socket, const void* bytes, size_t count, int flags) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, int)>("send");
  if (const int error = struck("send")) return failed(error);
  return next(socket, bytes, count, flags);
}

ssize_t sendmsg(int socket, const struct msghdr* message, int flags) {
  static const auto next = real<ssize_t (*)(int, const struct msghdr*, int)>("sendmsg");
  if (const int error = struck("send")) return failed(error);
  return next(socket, message, flags);
}

#define STRUCK_MPI(NAME)                                                                     \
  int NAME(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j) { \
    struck(#NAME);                                                                           \
    return real<MpiFunction>(#NAME)(a, b, c, d, e, f, g, h, i, j);                           \
  }

// NOLINTBEGIN(readability-function-size)
STRUCK_MPI(MPI_Init_thread)
STRUCK_MPI(MPI_Comm_dup)
STRUCK_MPI(MPI_Comm_split_type)
STRUCK_MPI(MPI_Win_allocate_shared)
STRUCK_MPI(MPI_Win_free)
STRUCK_MPI(MPI_Comm_free)
STRUCK_MPI(MPI_Barrier)
STRUCK_MPI(MPI_Bcast)
STRUCK_MPI(MPI_Gather)
STRUCK_MPI(MPI_Recv)
STRUCK_MPI(MPI_Allgather)
STRUCK_MPI(MPI_Allreduce)
STRUCK_MPI(MPI_Reduce)
STRUCK_MPI(MPI_Finalize)
// NOLINTEND(readability-function-size)

}  // extern "C"
