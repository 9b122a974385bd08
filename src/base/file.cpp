#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {
namespace {

constexpr const char* kTemporary = ".tmp-";

namespace fs = std::filesystem;

[[noreturn]] void fail(ExitCode code, std::string_view action, const fs::path& path,
                       std::string fix = {}) {
  throw Error(code, fmt::format("cannot {} '{}': {}", action, path.string(), errno_text()),
              std::move(fix));
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

MappedFile::MappedFile(fs::path path) : path_(std::move(path)) {
  const UniqueFd file = open_for_reading(path_);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(ExitCode::kInputOutput, "examine", path_);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ExitCode::kBadData, fmt::format("'{}' is not a regular file", path_.string()));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail(ExitCode::kInputOutput, "map", path_);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void TemporaryFile::rename_to(const fs::path& target) {
  if (std::rename(path_.c_str(), target.c_str()) != 0)
    fail(creation_failure(), "rename a finished file to", target);
  keep();
}

UniqueFd open_for_reading(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) return file;
  const bool missing = errno == ENOENT || errno == ENOTDIR;
  fail(missing ? ExitCode::kNoInput : ExitCode::kInputOutput, "open", path);
}

ExitCode creation_failure() {
  const bool disk = errno == ENOSPC || errno == EDQUOT || errno == EIO;
  return disk ? ExitCode::kInputOutput : ExitCode::kCannotCreate;
}

UniqueFd create_file(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) fail(creation_failure(), "create", path);
  return file;
}

std::size_t read_some(int fd, std::span<std::byte> buffer, const fs::path& path) {
  for (;;) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) fail(ExitCode::kInputOutput, "read", path);
  }
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
    if (count < 0 && errno != EINTR) {
      fail(ExitCode::kInputOutput, "write", path, "free space on that disk, or write elsewhere");
    }
  }
}

void close_file(UniqueFd file, const fs::path& path) {
  if (::fsync(file.get()) != 0) fail(ExitCode::kInputOutput, "write to disk", path);
  if (::close(file.release()) != 0) fail(ExitCode::kInputOutput, "close", path);
}

void sync_folder(const fs::path& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail(ExitCode::kInputOutput, "open the folder", path);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to do on them.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) {
    fail(ExitCode::kInputOutput, "write to disk the folder", path);
  }
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  TemporaryFile temporary(temporary_beside(path));
  UniqueFd file = create_file(temporary.path());
  write_all(file.get(), std::as_bytes(std::span(text)), temporary.path());
  close_file(std::move(file), temporary.path());
  temporary.rename_to(path);
  sync_folder(folder_of(path));
}

std::string read_text_file(const fs::path& path) {
  const UniqueFd file = open_for_reading(path);
  std::string text;
  std::vector<std::byte> buffer(1 << 16);
  while (const std::size_t count = read_some(file.get(), buffer, path)) {
    text.append(reinterpret_cast<const char*>(buffer.data()), count);
  }
  return text;
}

std::string random_suffix() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) {
    throw Error(ExitCode::kInternal, "no random bytes from the system: " + errno_text());
  }
  return fmt::format("{:012x}", random >> 16);
}

fs::path temporary_beside(const fs::path& path) {
  return path.string() + kTemporary + random_suffix();
}

void remove_temporaries_beside(const fs::path& path) {
  const std::string front = path.filename().string() + kTemporary;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(path), ignored))
    if (entry.path().filename().string().starts_with(front)) fs::remove(entry.path(), ignored);
}

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

}  // namespace gradsync
