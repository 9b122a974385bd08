// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/file.h"

namespace gradsync {

/// The root of the checkout.
inline std::filesystem::path source_folder() {
  return std::filesystem::path(__FILE__).parent_path() / "../..";
}

/// A fresh folder for one test, removed with all it holds. The folder above it may be open to all
/// users of the machine, so nobody else can have made it (mkdtemp refuses a name that exists) or
/// write into it (mode 0700): tests write by calls that follow symbolic links.
class TestFolder {
 public:
  TestFolder() {
    std::string name = std::filesystem::temp_directory_path() / "gradsync-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), "cannot make the folder " + name);
    path_ = name;
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
