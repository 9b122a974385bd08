#pragma once

#include <filesystem>
#include <string>

#include "support/file.h"

namespace gradsync {

/// The root of the checkout.
inline std::filesystem::path source_folder() {
  return std::filesystem::path(__FILE__).parent_path() / "../..";
}

/// A fresh folder for one test, removed with all it holds.
class TestFolder {
 public:
  TestFolder()
      : path_(std::filesystem::temp_directory_path() / ("gradsync-test-" + random_suffix())) {
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// How many names it holds, at any depth.
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::recursive_directory_iterator(path_), {});
  }

 private:
  std::filesystem::path path_;
};

/// A root folder with files of /proc and /sys as the kernel gives them.
class FakeRoot {
 public:
  /// Replaces a file.
  void state(const std::string& file, const std::string& text) const {
    const auto path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);
    write_file_atomically(path, text + "\n");
  }
  std::filesystem::path path() const { return folder_.path(); }

 private:
  TestFolder folder_;
};

}  // namespace gradsync
