#include "fuzz/folder.h"

#include <fstream>

#include "support/file.h"

namespace gradsync::fuzz {

namespace fs = std::filesystem;

Folder::Folder() : path_(fs::temp_directory_path() / ("gradsync-fuzz-" + random_suffix())) {
  fs::create_directory(path_);
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Folder::write(const std::string& name, std::string_view content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
}

}  // namespace gradsync::fuzz
