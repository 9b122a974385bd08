#include "data/staging.h"

#include <cstdio>
#include <system_error>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace gradsync {

namespace fs = std::filesystem;

fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void require_absent(const fs::path& target) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target, ignored))) return;
  throw Error(ExitCode::kCannotCreate,
              fmt::format("'{}' exists already; it was not changed", target.string()),
              "choose another --to, or remove that folder first");
}

StagedFolder::StagedFolder(const fs::path& target) : target_(without_trailing_slash(target)) {
  require_absent(target_);
  temporary_ = target_.string() + ".partial-" + random_suffix();
  std::error_code error;
  fs::create_directories(temporary_, error);
  if (!error) return;
  throw Error(ExitCode::kCannotCreate,
              fmt::format("cannot make the folder '{}': {}", temporary_.string(), error.message()));
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void StagedFolder::publish() {
  sync_folder(temporary_);
  require_absent(target_);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw Error(creation_failure(), fmt::format("cannot rename the finished folder to '{}': {}",
                                                target_.string(), errno_text()));
  }
  temporary_.clear();
  sync_folder(folder_of(target_));
}

}  // namespace gradsync
