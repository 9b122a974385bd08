// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace gradsync {

/// Owns a file descriptor; move-only; closes it when it goes.
/// Closing here ignores errors: after a write that counts, sync and close it with `close_file`.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// A whole file mapped read-only. The pages are the page cache's, so all ranks of a node share one
/// copy. Do not shorten the file while it is mapped.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws Error as open_for_reading does. An empty file gives an empty span.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// Removes the file `path` when it goes, unless the file was given its name before.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Takes the place of `target`, which may exist. Throws Error kCannotCreate, kInputOutput where
  /// the disk is full or broken.
  void rename_to(const std::filesystem::path& target);
  /// Leaves the file alone from now on.
  void keep() { path_.clear(); }

 private:
  std::filesystem::path path_;
};

/// Gives `from` the name `to` unless something has that name. Throws Error kCannotCreate with
/// `fix`, kInputOutput where the disk is full or broken.
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& fix);

/// Opens an existing file. Throws Error kNoInput if it is missing or may not be read, kBadData if
/// it is no regular file (/dev/null counts as one, and so does the pipe that a shell puts in place
/// of
/// `<(command)`), kInputOutput otherwise. Waits for nobody.
UniqueFd open_for_reading(const std::filesystem::path& path);

/// Throws Error kCannotCreate unless a file of this name can be written: its folder is there and
/// may be written, and nothing but a regular file has the name. Nothing is made. An empty path, and
/// "-" for standard output, pass.
void require_writable(const std::filesystem::path& path);

/// The same, and throws Error kCannotCreate with `fix` if anything has the name.
void require_free(const std::filesystem::path& path, const std::string& fix);

/// The exit code for a file that could not be made or named, by errno: kInputOutput where the disk
/// is full or broken, else kCannotCreate.
ExitCode creation_failure();

/// Makes a file that must not exist yet (O_EXCL). Throws Error kCannotCreate, kInputOutput where
/// the disk is full or broken.
UniqueFd create_file(const std::filesystem::path& path);

/// Fills the front of `buffer`; returns how many bytes, 0 only at the end of the file.
std::size_t read_some(int fd, std::span<std::byte> buffer, const std::filesystem::path& path);

/// Writes all of `bytes`; `path` is for the message. Throws Error kInputOutput.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// fsync and close, both checked: a full disk may show only here. Throws Error kInputOutput.
void close_file(UniqueFd file, const std::filesystem::path& path);

/// Makes the names in a folder (a rename, a new file) survive a power cut. Throws Error
/// kInputOutput.
void sync_folder(const std::filesystem::path& path);

/// Writes `text` so that `path` holds either what it held before or all of it: a temporary file
/// beside it, fsync, rename over `path`, fsync of the folder. Nothing is left behind on failure.
/// Throws Error as require_writable does, or kInputOutput.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

inline constexpr std::size_t kMostTextBytes = std::size_t{256} << 20;

/// A whole text file. Throws Error as open_for_reading does, and kBadData for one that is longer.
std::string read_text_file(const std::filesystem::path& path,
                           std::size_t most_bytes = kMostTextBytes);

/// Twelve hex digits from the system's random source, for names of temporary files.
std::string random_suffix();

/// A new name in the folder of `path`, for the file that will take its place.
std::filesystem::path temporary_beside(const std::filesystem::path& path);

/// Removes what processes that were killed have left under such names. To be called where no
/// process else writes `path`. What cannot be removed stays.
void remove_temporaries_beside(const std::filesystem::path& path);

/// The folder a path lies in; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// Texts of other programs and of people, without what editors, launchers and loggers add to them.

/// A text file without byte order marks, carriage returns before a line feed, color sequences of
/// terminals, and the tags of mpirun ("[1,0]<stdout>:"), which stand within a line as well where a
/// program flushes parts of it. Throws Error as read_text_file, and kBadData for UTF-16.
std::string read_foreign_text(const std::filesystem::path& path);

/// What stands before each line of a program: a time, a rank, a host, indentation. It is learned
/// from a line whose own beginning is known; then its numbers and words may be others (times,
/// months, levels), and runs of blanks of any length.
class LinePrefix {
 public:
  LinePrefix() = default;
  explicit LinePrefix(std::string_view text);

  /// The line behind its prefix; nothing if it begins in another way.
  std::optional<std::string_view> rest(std::string_view line) const;

 private:
  std::string text_;  // empty: none
};

/// Whether a lock of the kernel (flock) on the open file `fd` is seen by every process that can
/// reach the file: true for file systems of one host, false where it is not known.
bool locks_reach_everyone(int fd);

/// A file that says who writes another one: host, process, Slurm job. It works on every file
/// system, and goes with the object. What a killed process left is recognized, and replaced, where
/// its process can be asked (same host, and no other container), where the same Slurm job was
/// requeued since, or where other means show that no process is left.
class LockFile {
 public:
  enum class Others {
    kMayLive,  ///< only the lock file can show
    kGone      ///< no other process holds a lock of the kernel, which would be seen here
  };

  /// `what` is the file that it is for, in messages. Throws Error kCannotCreate if another process
  /// holds it or if it cannot be made.
  LockFile(std::filesystem::path path, const std::filesystem::path& what, Others others);
  ~LockFile();
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&&) = delete;
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string text_;  ///< what stands in it
};

}  // namespace gradsync
