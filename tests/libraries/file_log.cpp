// SPDX-License-Identifier: BSD-3-Clause
// Loaded with LD_PRELOAD, logs every call that changes a file below a folder, with what was
// written, in the order in which the calls returned. From it tests/soak/crash_disk.py makes what a
// crash may leave of the files.
//
//   FILE_LOG=FILE           the log; records are appended, so several processes may share it
//   FILE_LOG_FOLDER=FOLDER  only calls on files below this folder, a path without links
//
// A record: Head, then the first path, the second path and the data. Calls that failed are left
// out.

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace {

enum class Call : std::uint32_t {
  kOpen = 1,
  kWrite,
  kTruncate,
  kSync,
  kRename,
  kLink,
  kUnlink,
  kMakeFolder,
  kRemoveFolder
};

constexpr std::uint32_t kMagic = 0x474C4F47;  // "GOLG"

struct Head {
  std::uint32_t magic, call;
  std::int32_t process, unused;
  std::int64_t time_ns, inode, offset;
  std::uint32_t path_bytes, other_bytes, data_bytes, is_folder;
};

class Log {
 public:
  Log() {
    const char* file = std::getenv("FILE_LOG");
    const char* folder = std::getenv("FILE_LOG_FOLDER");
    if (!file || !folder) return;
    folder_ = std::string(folder) + '/';
    fd_ = static_cast<int>(
        syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
    if (fd_ < 0) std::abort();
    // Out of the way of programs that count on the next number.
    const int high = fcntl(fd_, F_DUPFD_CLOEXEC, 900);
    syscall(SYS_close, fd_);
    fd_ = high;
  }

  bool covers(const std::string& path) const {
    return fd_ >= 0 && (path.starts_with(folder_) || path + '/' == folder_);
  }

  void add(Head head, const std::string& path, const std::string& other, const void* data) const {
    const int before = errno;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    head.magic = kMagic;
    head.process = getpid();
    head.time_ns = now.tv_sec * 1'000'000'000 + now.tv_nsec;
    head.path_bytes = static_cast<std::uint32_t>(path.size());
    head.other_bytes = static_cast<std::uint32_t>(other.size());
    const std::string front =
        std::string(reinterpret_cast<const char*>(&head), sizeof head) + path + other;
    const iovec parts[] = {{const_cast<char*>(front.data()), front.size()},
                           {const_cast<void*>(data), head.data_bytes}};
    const auto bytes = static_cast<long>(front.size() + head.data_bytes);
    if (syscall(SYS_writev, fd_, parts, 2) != bytes) std::abort();  // a log must have no gap
    errno = before;
  }

 private:
  int fd_ = -1;
  std::string folder_;
};

const Log& file_log() {
  static const Log* log = new Log;  // never destroyed: files are written until the end
  return *log;
}

/// The path of an open file, without links; empty if it has none.
std::string path_of(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 && path[0] == '/' ? std::string(path, static_cast<std::size_t>(length)) : "";
}

/// The path without links in its folders. The last part stays as it is: a link is renamed, not what
/// it names.
std::string path_of(int folder, const char* name) {
  std::string path = name;
  if (path[0] != '/' && folder != AT_FDCWD) path = path_of(folder) + '/' + path;
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  const auto slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  char resolved[PATH_MAX];
  if (!realpath(parent.c_str(), resolved)) return "";
  return std::string(resolved) + '/' + path.substr(slash == std::string::npos ? 0 : slash + 1);
}

/// Logs a call on an open file, if it is one of those that count.
void add(Call call, int fd, std::int64_t offset = 0, const void* data = nullptr,
         std::size_t bytes = 0) {
  const int before = errno;
  struct stat status {};
  const std::string path = path_of(fd);
  if (file_log().covers(path) && fstat(fd, &status) == 0 &&
      (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) {
    Head head{};
    head.call = static_cast<std::uint32_t>(call);
    head.inode = static_cast<std::int64_t>(status.st_ino);
    head.offset = offset;
    head.data_bytes = static_cast<std::uint32_t>(bytes);
    head.is_folder = S_ISDIR(status.st_mode) ? 1 : 0;
    file_log().add(head, path, "", data);
  }
  errno = before;
}

void add(Call call, const std::string& path, const std::string& other = "") {
  const int before = errno;
  if (file_log().covers(path) || file_log().covers(other)) {
    Head head{};
    head.call = static_cast<std::uint32_t>(call);
    file_log().add(head, path, other, nullptr);
  }
  errno = before;
}

int opened(int fd, int flags) {
  if (fd >= 0 && (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0)
    add(Call::kOpen, fd, (flags & O_TRUNC) != 0 ? 1 : 0);
  return fd;
}

mode_t mode_in(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

/// Where the next write of this file begins.
std::int64_t position(int fd) {
  struct stat status {};
  if ((fcntl(fd, F_GETFL) & O_APPEND) != 0 && fstat(fd, &status) == 0) return status.st_size;
  return lseek(fd, 0, SEEK_CUR);
}

/// Paths before the call: afterwards a name may be gone.
template <typename Do>
int with_paths(Call call, const std::string& path, const std::string& other, Do change) {
  const int result = change();
  if (result == 0) add(call, path, other);
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return opened(static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode)), flags);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return opened(static_cast<int>(syscall(SYS_openat, folder, path, flags, mode)), flags);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  const std::int64_t offset = position(fd);
  const long written = syscall(SYS_write, fd, data, bytes);
  if (written > 0) add(Call::kWrite, fd, offset, data, static_cast<std::size_t>(written));
  return written;
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  const long written = syscall(SYS_pwrite64, fd, data, bytes, offset);
  if (written > 0) add(Call::kWrite, fd, offset, data, static_cast<std::size_t>(written));
  return written;
}

ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return pwrite(fd, data, bytes, offset);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  const std::int64_t offset = position(fd);
  const long written = syscall(SYS_writev, fd, parts, count);
  std::string data;
  for (int i = 0; i < count && written > 0; ++i)
    data.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  if (written > 0) add(Call::kWrite, fd, offset, data.data(), static_cast<std::size_t>(written));
  return written;
}

int ftruncate(int fd, off_t length) noexcept {
  const auto result = static_cast<int>(syscall(SYS_ftruncate, fd, length));
  if (result == 0) add(Call::kTruncate, fd, length);
  return result;
}

int ftruncate64(int fd, off64_t length) noexcept {
  return ftruncate(fd, length);
}

int fsync(int fd) {
  const auto result = static_cast<int>(syscall(SYS_fsync, fd));
  if (result == 0) add(Call::kSync, fd);
  return result;
}

int fdatasync(int fd) {
  const auto result = static_cast<int>(syscall(SYS_fdatasync, fd));
  if (result == 0) add(Call::kSync, fd);
  return result;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  return with_paths(Call::kRename, path_of(from_folder, from), path_of(to_folder, to), [&] {
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return renameat2(from_folder, from, to_folder, to, 0);
}

int rename(const char* from, const char* to) noexcept {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return with_paths(Call::kLink, path_of(from_folder, from), path_of(to_folder, to), [&] {
    return static_cast<int>(syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
  });
}

int link(const char* from, const char* to) noexcept {
  return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int folder, const char* name, int flags) noexcept {
  return with_paths((flags & AT_REMOVEDIR) != 0 ? Call::kRemoveFolder : Call::kUnlink,
                    path_of(folder, name), "",
                    [&] { return static_cast<int>(syscall(SYS_unlinkat, folder, name, flags)); });
}

int unlink(const char* name) noexcept {
  return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char* name) noexcept {
  return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int remove(const char* name) noexcept {
  struct stat status {};
  return lstat(name, &status) == 0 && S_ISDIR(status.st_mode) ? rmdir(name) : unlink(name);
}

int mkdir(const char* name, mode_t mode) noexcept {
  return with_paths(Call::kMakeFolder, path_of(AT_FDCWD, name), "",
                    [&] { return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode)); });
}

}  // extern "C"
