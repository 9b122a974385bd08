#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gradsync::fuzz {

/// A folder for parsers that take one; removed at the end of the process.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Replaces a file.
  void write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace gradsync::fuzz
