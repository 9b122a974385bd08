// SPDX-License-Identifier: BSD-3-Clause
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"

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

void rename_to_new(const fs::path& from, const fs::path& to, const std::string& fix) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  // Some network file systems know no RENAME_NOREPLACE; a hard link refuses existing names too.
  if ((errno == EINVAL || errno == ENOSYS) && ::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return;
  }
  // And some know no links: an empty file takes the name before it is replaced.
  if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) {
    const UniqueFd taken(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (taken && ::rename(from.c_str(), to.c_str()) == 0) return;
    if (taken) ::unlink(to.c_str());
  }
  throw Error(
      creation_failure(),
      fmt::format("cannot give the finished file the name '{}': {}", to.string(), errno_text()),
      fix);
}

namespace {

/// What `status` is of, if it is no regular file.
const char* other_kind(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return nullptr;
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISFIFO(status.st_mode)) return "a FIFO";
  if (S_ISSOCK(status.st_mode)) return "a socket";
  return "a device";
}

bool is_null_device(const struct stat& status) {
  struct stat null {};
  return S_ISCHR(status.st_mode) && ::stat("/dev/null", &null) == 0 &&
         status.st_rdev == null.st_rdev;
}

/// The pipe of `<(command)`, which has an end.
bool is_pipe_of_shell(const fs::path& path, const struct stat& status) {
  return S_ISFIFO(status.st_mode) &&
         (path.string().starts_with("/dev/fd/") || path == "/dev/stdin");
}

}  // namespace

UniqueFd open_for_reading(const fs::path& path) {
  // A FIFO without a writer would be waited for.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    const bool broken = errno == EIO || errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    fail(
        broken ? ExitCode::kInputOutput : ExitCode::kNoInput, "open", path,
        errno == EACCES ? "chmod u+r " + shell_quoted(path.string()) : "name a file that is there");
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(ExitCode::kInputOutput, "examine", path);
  const char* kind = other_kind(status);
  if (kind != nullptr && !is_null_device(status) && !is_pipe_of_shell(path, status))
    throw Error(ExitCode::kBadData, fmt::format("'{}' is {}, not a file", path.string(), kind),
                "name a regular file");
  ::fcntl(file.get(), F_SETFL, 0);
  return file;
}

void require_writable(const fs::path& path) {
  if (path.empty() || path == "-") return;
  const auto refuse = [&path](const std::string& why, const std::string& fix) {
    throw Error(ExitCode::kCannotCreate, fmt::format("cannot write '{}': {}", path.string(), why),
                fix);
  };
  // A new file would take the place of the link, /dev/stdout or another.
  const std::string whole = fs::absolute(path).lexically_normal().string();
  struct stat status {};
  if ((whole.starts_with("/dev/") || whole.starts_with("/proc/")) &&
      ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    refuse("it is a link of the system", "name a file, or - where that is allowed");
  const fs::path folder = folder_of(path);
  if (::stat(folder.c_str(), &status) != 0)
    refuse(fmt::format("folder '{}': {}", folder.string(), errno_text()),
           errno == ENOENT ? "mkdir -p " + shell_quoted(folder.string()) : "name another file");
  if (!S_ISDIR(status.st_mode))
    refuse(fmt::format("'{}' is no folder", folder.string()), "name another file");
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(fmt::format("folder '{}': {}", folder.string(), errno_text()),
           "name a file in a folder that you may write");
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) refuse(errno_text(), "name another file");
  } else if (const char* kind = other_kind(status)) {
    refuse(fmt::format("it is {}", kind), "name a file");
  }
}

void require_free(const fs::path& path, const std::string& fix) {
  struct stat status {};
  if (!path.empty() && ::lstat(path.c_str(), &status) == 0)
    throw Error(ExitCode::kCannotCreate, fmt::format("'{}' exists", path.string()), fix);
  require_writable(path);
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
  if (TEMP_FAILURE_RETRY(::fsync(file.get())) != 0)
    fail(ExitCode::kInputOutput, "write to disk", path);
  if (::close(file.release()) != 0) fail(ExitCode::kInputOutput, "close", path);
}

void sync_folder(const fs::path& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail(ExitCode::kInputOutput, "open the folder", path);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to do on them.
  if (TEMP_FAILURE_RETRY(::fsync(folder.get())) != 0 && errno != EINVAL) {
    fail(ExitCode::kInputOutput, "write to disk the folder", path);
  }
}

void write_file_atomically(const fs::path& name, std::string_view text) {
  // A device would lose its name to the new file, and a link, too.
  require_writable(name);
  std::error_code is_new;
  const fs::path target = fs::canonical(name, is_new);
  const fs::path& path = is_new ? name : target;
  TemporaryFile temporary(temporary_beside(path));
  UniqueFd file = create_file(temporary.path());
  write_all(file.get(), std::as_bytes(std::span(text)), temporary.path());
  close_file(std::move(file), temporary.path());
  temporary.rename_to(path);
  sync_folder(folder_of(path));
}

std::string read_text_file(const fs::path& path, std::size_t most_bytes) {
  const UniqueFd file = open_for_reading(path);
  std::string text;
  std::vector<std::byte> buffer(1 << 16);
  while (const std::size_t count = read_some(file.get(), buffer, path)) {
    if (text.size() + count > most_bytes)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}' has more than {} of text", path.string(),
                              format_bytes(static_cast<std::int64_t>(most_bytes))),
                  "name the text file that was meant");
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

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestTag = 200;

bool is_digit(char c) {
  return (c >= '0' && c <= '9') || c == '.';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/// Bytes of a color sequence at the beginning, "\x1b[36m"; 0 if there is none.
std::size_t color_sequence(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const auto last = std::find_if(text.begin() + 2, text.end(), [](char c) { return c >= '@'; });
  return last == text.end() ? 0 : static_cast<std::size_t>(last - text.begin()) + 1;
}

/// Bytes of a tag at the beginning, "[1,0]<stdout>:" of Open MPI 4, "[prterun-a-7@1,0]<stdout>: "
/// of Open MPI 5; 0 if there is none.
std::size_t mpirun_tag(std::string_view text) {
  text = text.substr(0, kLongestTag);
  text = text.substr(0, text.find('\n'));
  std::size_t end = 0;
  while (end < text.size() && text[end] == '[') {
    const std::size_t close = text.find(']', end);
    if (close == text.npos) return 0;
    end = close + 1;
  }
  if (end == 0) return 0;
  for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stddiag>:"})
    if (text.substr(end).starts_with(stream)) return end + stream.size();
  return 0;
}

/// The length of the run of one class of characters at the beginning; other characters stand alone.
std::size_t run_length(std::string_view text) {
  for (const auto of_class : {is_digit, is_letter, is_blank})
    if (!text.empty() && of_class(text.front()))
      return static_cast<std::size_t>(std::ranges::find_if_not(text, of_class) - text.begin());
  return std::min<std::size_t>(1, text.size());
}

bool same_class(char a, char b) {
  for (const auto of_class : {is_digit, is_letter, is_blank})
    if (of_class(a)) return of_class(b);
  return a == b;
}

}  // namespace

std::string read_foreign_text(const std::filesystem::path& path) {
  const std::string bytes = read_text_file(path);
  std::string_view rest = bytes;
  if (rest.starts_with("\xFF\xFE") || rest.starts_with("\xFE\xFF"))
    throw Error(ExitCode::kBadData, fmt::format("'{}' is UTF-16", path.string()),
                "iconv -f UTF-16 -t UTF-8 FILE > NEW-FILE");
  std::string text;
  while (!rest.empty()) {
    const std::size_t plain = std::min(rest.find_first_of("\r\x1b[\xEF"), rest.size());
    text += rest.substr(0, plain);
    rest.remove_prefix(plain);
    std::size_t left_out = rest.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    if (rest.starts_with("\r\n")) left_out = 1;
    if (left_out == 0) left_out = color_sequence(rest);
    if (const std::size_t tag = mpirun_tag(rest); left_out == 0 && tag > 0) {
      left_out = tag;
      // So that what follows does not touch a time before the tag.
      if (rest.size() > tag && !is_blank(rest[tag])) text += ' ';
    }
    if (left_out == 0) text += rest.substr(0, 1);
    rest.remove_prefix(std::min(std::max<std::size_t>(left_out, 1), rest.size()));
  }
  return text;
}

LinePrefix::LinePrefix(std::string_view text)
    : text_(std::ranges::all_of(text, is_blank) ? std::string_view() : text) {}

std::optional<std::string_view> LinePrefix::rest(std::string_view line) const {
  for (std::string_view prefix = text_; !prefix.empty();) {
    if (line.empty() || !same_class(prefix.front(), line.front())) return std::nullopt;
    prefix.remove_prefix(run_length(prefix));
    line.remove_prefix(run_length(line));
  }
  return line;
}

}  // namespace gradsync
