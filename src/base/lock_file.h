#pragma once

#include <filesystem>
#include <string>

namespace gradsync {

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
