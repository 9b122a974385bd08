#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gradsync {

/// The folders of the control groups that hold this process and have `controller` ("memory",
/// "cpu"), as far as they can be seen: its own first, then those around it, whose limits hold as
/// well. Of cgroup v2, and of v1 where the controller is mounted as that. In a container the
/// outermost one that can be seen is the container's own. `root` holds proc and sys.
std::vector<std::filesystem::path> control_groups(const std::string& controller,
                                                  const std::filesystem::path& root = "/");

}  // namespace gradsync
