#include "support/memory.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
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

namespace {

/// In lower case. cuDNN, cuSOLVER, cuSPARSE and cuFFT name their codes as cuBLAS does; cuDNN 9 has
/// one that is longer.
constexpr std::array<std::string_view, 9> kWords = {
    "out of memory",         "out_of_memory",          "not enough memory",
    "can't allocate memory", "cannot allocate memory", "errormemoryallocation",
    "_alloc_failed",         "_allocation_failed",     "failed to cuda malloc"};

/// Of LibTorch, whether cuDNN timed the algorithms or proposed them.
constexpr std::string_view kNoAlgorithm = "unable to find an engine to execute this computation";

std::atomic<bool (*)()> device_nearly_full{nullptr};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
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
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view words) {
    return lower.find(words) != std::string::npos;
  });
}

}  // namespace gradsync
