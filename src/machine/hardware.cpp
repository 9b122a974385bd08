#include "machine/hardware.h"

#include <fstream>
#include <set>

#include <fmt/format.h>

#include "machine/sysfs.h"

namespace gradsync {

namespace fs = std::filesystem;

namespace {

constexpr double kKiB = 1024;

void read_processors(const fs::path& cpuinfo, HostHardware& host) {
  std::set<std::string> sockets;
  std::ifstream in(cpuinfo);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("processor")) ++host.processors;
    if (line.starts_with("physical id")) sockets.insert(line.substr(line.find(':') + 1));
  }
  host.sockets = static_cast<std::int32_t>(sockets.size());
}

std::int64_t total_memory(const fs::path& meminfo) {
  std::ifstream in(meminfo);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemTotal:"))
      return static_cast<std::int64_t>(std::strtod(line.c_str() + 9, nullptr) * kKiB);
  return 0;
}

/// "48K" as "48 KiB".
std::string cache_size(const std::string& text) {
  const double kib = std::strtod(text.c_str(), nullptr) * (text.ends_with('M') ? kKiB : 1);
  return kib >= kKiB ? fmt::format("{:g} MiB", kib / kKiB) : fmt::format("{:g} KiB", kib);
}

std::string caches_of(const fs::path& processor) {
  std::string text;
  for (const fs::path& cache : entries_of(processor / "cache")) {
    const std::string type = line_of(cache / "type"), level = line_of(cache / "level");
    if (level.empty() || type == "Instruction") continue;
    text += fmt::format("{}L{}{} {}", text.empty() ? "" : ", ", level, type == "Data" ? "d" : "",
                        cache_size(line_of(cache / "size")));
  }
  return text;
}

std::string ports_text(const fs::path& sysfs) {
  std::string text;
  for (const NominalRate& port : nominal_rates(sysfs))
    text += fmt::format("{}{} {:g} Gbit/s", text.empty() ? "" : ", ", port.name,
                        port.rate_Bps * 8 / 1e9);
  return text;
}

std::int32_t count_nodes(const fs::path& folder) {
  std::int32_t nodes = 0;
  for (const fs::path& entry : entries_of(folder))
    nodes += fs::exists(entry / "cpulist") ? 1 : 0;
  return nodes;
}

}  // namespace

HostHardware host_hardware(const fs::path& root) {
  HostHardware host;
  read_processors(root / "proc/cpuinfo", host);
  host.numa_nodes = count_nodes(root / "sys/devices/system/node");
  host.memory_bytes = total_memory(root / "proc/meminfo");
  host.caches = caches_of(root / "sys/devices/system/cpu/cpu0");
  host.network = ports_text(root / "sys");
  return host;
}

}  // namespace gradsync
