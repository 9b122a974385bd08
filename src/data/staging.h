#pragma once

#include <filesystem>

namespace gradsync {

/// A folder that appears whole or not at all: it is filled under another name beside its place,
/// then renamed. If it goes before `publish`, what was written is removed. (A killed process leaves
/// a folder NAME.partial-… behind.)
class StagedFolder {
 public:
  /// Makes the folder to be filled, and the folders above it where they are missing.
  /// Throws Error kCannotCreate if `target` exists or nothing can be made there.
  explicit StagedFolder(const std::filesystem::path& target);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return temporary_; }
  /// Gives the folder its name. Throws Error kCannotCreate if something has that name by now.
  void publish();

 private:
  std::filesystem::path target_, temporary_;
};

/// `path` without a slash at its end, so that names beside it can be made from it.
std::filesystem::path without_trailing_slash(const std::filesystem::path& path);

/// Throws Error kCannotCreate if there is anything at `target`.
void require_absent(const std::filesystem::path& target);

}  // namespace gradsync
