// SPDX-License-Identifier: BSD-3-Clause
#include "base/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string>

#include "base/parse.h"
#include "base/ranges.h"

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
    else if (contains(names, controller))
      add_upwards(mounts / controller, group, folders);
  }
  if (folders.empty()) add_upwards(mounts, "", folders);
  return folders;
}

namespace {

/// The number behind the word `key` in a file that has lines "key 123" (`unit_bytes` each).
std::optional<std::int64_t> bytes_behind(const fs::path& path, const std::string& key,
                                         std::int64_t unit_bytes) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t number = 0;
    if (words >> name >> number && name == key) return number * unit_bytes;
  }
  return std::nullopt;
}

/// Number in a file of /proc with lines "Key:   123 kB".
std::optional<std::int64_t> proc_bytes(const fs::path& path, const std::string& key) {
  return bytes_behind(path, key + ":", 1024);
}

/// A file that holds one number; nothing for "max" or if it is not there.
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// How the files of a control group are called.
struct GroupFiles {
  const char *most, *used;
  /// Keys of memory.stat: what the kernel gives back before it refuses memory. Pages of /dev/shm
  /// are not among them.
  std::array<const char*, 3> given_back;
};
constexpr std::array<GroupFiles, 2> kGroupFiles = {
    GroupFiles{
        "memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}},
    GroupFiles{"memory.limit_in_bytes",
               "memory.usage_in_bytes",
               {"total_inactive_file", "total_active_file", nullptr}}};

/// What the limit of one control group leaves; nothing without a limit.
std::optional<std::int64_t> left_by(const fs::path& group) {
  for (const GroupFiles& files : kGroupFiles) {
    const auto most = number_in(group / files.most), used = number_in(group / files.used);
    if (!most || !used) continue;
    std::int64_t given_back = 0;
    for (const char* key : files.given_back)
      if (key != nullptr) given_back += bytes_behind(group / "memory.stat", key, 1).value_or(0);
    return std::max<std::int64_t>(0, *most - std::max<std::int64_t>(0, *used - given_back));
  }
  return std::nullopt;
}

/// The lesser one of what is known.
std::optional<std::int64_t> least(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
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

std::optional<std::int64_t> available_memory_bytes(const fs::path& root) {
  auto left = proc_bytes(root / "proc/meminfo", "MemAvailable");
  for (const fs::path& group : control_groups("memory", root))
    left = least(left, left_by(group));
  return left;
}

void tune_allocation() {
  ::setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"})
    if (std::getenv(name) != nullptr) return;
  constexpr int kLargest = std::numeric_limits<int>::max(), kAhead_bytes = 64 << 20;
  // Before glibc 2.35 the threshold has a limit, and one above it is refused.
  constexpr int kLargestOfOld_bytes = 32 << 20;
  if (mallopt(M_MMAP_THRESHOLD, kLargest) == 0) mallopt(M_MMAP_THRESHOLD, kLargestOfOld_bytes);
  mallopt(M_TRIM_THRESHOLD, kLargest);
  mallopt(M_TOP_PAD, kAhead_bytes);
}

std::shared_ptr<std::byte> own_pages(std::size_t bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(pages), [bytes](std::byte* begin) { ::munmap(begin, bytes); }};
}

void return_freed_memory() {
  malloc_trim(0);
}

namespace {

/// In lower case. cuDNN, cuSOLVER, cuSPARSE and cuFFT name their codes as cuBLAS does; cuDNN 9 has
/// one that is longer.
constexpr std::array<std::string_view, 9> kWords = {
    "out of memory",         "out_of_memory",          "not enough memory",
    "can't allocate memory", "cannot allocate memory", "errormemoryallocation",
    "_alloc_failed",         "_allocation_failed",     "failed to cuda malloc"};

/// LibTorch says this whether cuDNN timed the algorithms or proposed them.
constexpr std::string_view kNoAlgorithm = "unable to find an engine to execute this computation";

std::atomic<bool (*)()> device_nearly_full{nullptr};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

void ask_device_memory(bool (*nearly_full)()) {
  device_nearly_full = nearly_full;
}

bool tells_out_of_memory(std::string_view text) {
  // LibTorch appends where it was thrown: files and functions with names of their own.
  const std::string lower = lower_case(text.substr(0, text.find("\nException raised from ")));
  const auto nearly_full = device_nearly_full.load();
  if (lower.find(kNoAlgorithm) != std::string::npos && nearly_full && nearly_full()) return true;
  return std::ranges::any_of(
      kWords, [&](std::string_view words) { return lower.find(words) != std::string::npos; });
}

}  // namespace gradsync
