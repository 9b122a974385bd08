#include "sweep/cell_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::sweep {

namespace {

std::string who_we_are() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("host {}, process {}\n", host.data(), ::getpid());
}

// False if the file was removed, by the one who had it, after it was opened.
bool still_named(const UniqueFd& file, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Of the open file, not of the process: what we start shares it.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

UniqueFd locked(const CellFiles& files) {
  const std::filesystem::path& path = files.running;
  while (true) {
    // Without O_CLOEXEC: the launcher inherits the lock.
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0666));
    if (!file)
      throw Error(ExitCode::kCannotCreate, fmt::format("{}: {}", path.string(), errno_text()));
    struct flock lock = whole_file(F_WRLCK);
    if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES)
        throw Error(
            ExitCode::kUsage,
            fmt::format("{}: another process runs this cell: {}", path.string(), runner_of(files)),
            "wait for its end");
      throw Error(ExitCode::kCannotCreate,
                  fmt::format("cannot lock {}: {}", path.string(), errno_text()));
    }
    if (still_named(file, path)) return file;
  }
}

}  // namespace

CellLock::CellLock(const CellFiles& files) : path_(files.running), lock_(locked(files)) {
  const std::string text = who_we_are();
  if (::ftruncate(lock_.get(), 0) == 0)
    write_all(lock_.get(), std::as_bytes(std::span(text)), path_);
}

CellLock::~CellLock() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

std::string runner_of(const CellFiles& files) {
  try {
    const std::string text = read_text_file(files.running);
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";  // it has just ended
  }
}

bool is_running(const CellFiles& files) {
  const UniqueFd file(::open(files.running.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct flock lock = whole_file(F_WRLCK);
  return file && ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace gradsync::sweep
