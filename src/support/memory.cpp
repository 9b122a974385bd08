#include "support/memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace gradsync {

namespace {

/// The number of kB behind `key` in a file of /proc that has lines "Key:   123 kB".
std::optional<std::int64_t> proc_bytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == key + ":") return kilobytes * 1024;
  }
  return std::nullopt;
}

/// A file that holds one number; nothing for "max" or if it is not there.
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> control_group_bytes() {
  const auto most = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!most || !used) return std::nullopt;
  return std::max<std::int64_t>(0, *most - *used);
}

}  // namespace

std::optional<std::int64_t> peak_resident_bytes() {
  return proc_bytes("/proc/self/status", "VmHWM");
}

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n";
  return static_cast<bool>(file.flush());
}

std::optional<std::int64_t> available_memory_bytes() {
  const auto free = proc_bytes("/proc/meminfo", "MemAvailable");
  const auto group = control_group_bytes();
  if (free && group) return std::min(*free, *group);
  return free ? free : group;
}

void keep_freed_memory() {
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"})
    if (std::getenv(name) != nullptr) return;
  constexpr int kLargest = std::numeric_limits<int>::max(), kAhead_bytes = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kLargest);
  mallopt(M_TOP_PAD, kAhead_bytes);
}

}  // namespace gradsync
