#include "base/control_group.h"

#include <algorithm>
#include <fstream>

#include "base/parse.h"

namespace gradsync {

namespace fs = std::filesystem;

namespace {

/// From `group` below the mount point upwards. A container may see the mount point as its own group
/// and a path that holds outside only.
void add_upwards(const fs::path& mount, const fs::path& group, std::vector<fs::path>& folders) {
  fs::path below = group.relative_path().lexically_normal();
  std::error_code error;
  if (below.string().starts_with("..") || !fs::is_directory(mount / below, error)) below.clear();
  for (; !below.empty() && below != "."; below = below.parent_path())
    folders.push_back(mount / below);
  if (fs::is_directory(mount, error)) folders.push_back(mount);
}

}  // namespace

std::vector<fs::path> control_groups(const std::string& controller, const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  std::ifstream file(root / "proc/self/cgroup");
  // "0::/path" of v2, "4:memory:/path" and "3:cpu,cpuacct:/path" of v1.
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    const auto names = split_list(controllers, ',');
    if (controllers.empty())
      add_upwards(mounts, group, folders);
    else if (std::find(names.begin(), names.end(), controller) != names.end())
      add_upwards(mounts / controller, group, folders);
  }
  if (folders.empty()) add_upwards(mounts, "", folders);
  return folders;
}

}  // namespace gradsync
