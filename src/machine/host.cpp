// SPDX-License-Identifier: BSD-3-Clause
#include "machine/host.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/parse.h"
#include "stats/clock.h"

namespace gradsync {

namespace fs = std::filesystem;

std::string line_of(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

double number_in(const fs::path& file) {
  return std::strtod(line_of(file).c_str(), nullptr);
}

double counter_in(const fs::path& file) {
  const std::string line = line_of(file);
  char* end = nullptr;
  const double value = std::strtod(line.c_str(), &end);
  return end == line.c_str() ? std::nan("") : value;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    entries.push_back(entry->path());
  std::ranges::sort(entries);
  return entries;
}

namespace {

/// False also where /sys hides what it has from this user.
bool is_shown(const fs::path& entry) {
  std::error_code hidden;
  return fs::exists(entry, hidden);
}

constexpr double kBitsPerByte = 8;

std::vector<NominalRate> infiniband_rates(const fs::path& sysfs) {
  std::vector<NominalRate> rates;
  for (const fs::path& adapter : entries_of(sysfs / "class/infiniband"))
    for (const fs::path& port : entries_of(adapter / "ports"))
      if (line_of(port / "state").find("ACTIVE") != std::string::npos)
        rates.push_back(
            {fmt::format("{} port {}", adapter.filename().string(), port.filename().string()),
             number_in(port / "rate") * 1e9 / kBitsPerByte});
  return rates;
}

/// Virtual interfaces state a rate that nothing backs.
std::vector<NominalRate> interface_rates(const fs::path& sysfs) {
  std::vector<NominalRate> rates;
  for (const fs::path& interface : entries_of(sysfs / "class/net"))
    if (is_shown(interface / "device") && line_of(interface / "operstate") == "up")
      rates.push_back(
          {interface.filename().string(), number_in(interface / "speed") * 1e6 / kBitsPerByte});
  return rates;
}

NominalRate fastest(const std::vector<NominalRate>& rates) {
  NominalRate best;
  for (const NominalRate& one : rates)
    if (one.rate_Bps > best.rate_Bps) best = one;
  return best;
}

}  // namespace

std::vector<NominalRate> nominal_rates(const fs::path& sysfs) {
  std::vector<NominalRate> rates = infiniband_rates(sysfs);
  for (NominalRate& one : interface_rates(sysfs))
    rates.push_back(std::move(one));
  std::erase_if(rates, [](const NominalRate& one) { return !(one.rate_Bps > 0); });
  return rates;
}

NominalRate nominal_rate(const fs::path& sysfs) {
  const NominalRate best = fastest(infiniband_rates(sysfs));
  return best.rate_Bps > 0 ? best : fastest(interface_rates(sysfs));
}

bool has_infiniband() {
  return !entries_of("/sys/class/infiniband").empty();
}

bool has_fast_network() {
  return has_infiniband() || !entries_of("/sys/class/cxi").empty();
}

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
    const std::string size = line_of(cache / "size");  // many ARM hosts do not state it
    if (level.empty() || size.empty() || type == "Instruction") continue;
    text += fmt::format("{}L{}{} {}", text.empty() ? "" : ", ", level, type == "Data" ? "d" : "",
                        cache_size(size));
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
    nodes += is_shown(entry / "cpulist") ? 1 : 0;
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

namespace {

/// NaN without any part, and where one of them is NaN: a part that can be read again later would
/// otherwise make a jump of all that it has counted.
double sum_of(const std::vector<double>& parts) {
  return parts.empty() ? kNotMeasured : std::accumulate(parts.begin(), parts.end(), 0.0);
}

/// What a counter has advanced by; one that is lower than before began again at 0.
double passed(double now, double last) {
  return now < last ? now : now - last;
}

/// The name of a RAPL domain with that of the one it is a part of: "package-0/dram" of the folder
/// intel-rapl:0:1.
std::string full_name(const fs::path& domain) {
  const std::string folder = domain.filename(), name = line_of(domain / "name");
  const bool part = std::ranges::count(folder, ':') > 1;
  const fs::path whole = domain.parent_path() / folder.substr(0, folder.rfind(':'));
  return part ? line_of(whole / "name") + "/" + name : name;
}

struct InterfaceBytes {
  std::string name;
  double sent = 0, received = 0;
};

/// Interfaces of this process's network namespace, which /sys may not be of; without loopback.
std::vector<InterfaceBytes> interfaces_in(const fs::path& net_dev) {
  constexpr int kBetween = 7;  // numbers between received and sent bytes
  std::vector<InterfaceBytes> all;
  std::ifstream in(net_dev);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;  // the head
    std::istringstream words(line.substr(0, colon)), numbers(line.substr(colon + 1));
    InterfaceBytes one;
    words >> one.name;
    numbers >> one.received;
    for (int i = 0; i < kBetween; ++i)
      numbers >> one.sent;
    if (numbers >> one.sent && one.name != "lo") all.push_back(one);
  }
  return all;
}

/// Without any that is hardware, all of them. Ports of InfiniBand have counters of their own.
std::vector<InterfaceBytes> interfaces_that_count(const fs::path& root) {
  constexpr const char* kInfiniband = "32";  // ARPHRD_INFINIBAND: IP over it
  const auto folder = [&](const InterfaceBytes& one) { return root / "sys/class/net" / one.name; };
  auto all = interfaces_in(root / "proc/net/dev");
  std::erase_if(
      all, [&](const InterfaceBytes& one) { return line_of(folder(one) / "type") == kInfiniband; });
  std::vector<InterfaceBytes> hardware;
  for (const InterfaceBytes& one : all)
    if (is_shown(folder(one) / "device")) hardware.push_back(one);
  return hardware.empty() ? all : hardware;
}

}  // namespace

HostCounters::HostCounters(const fs::path& root) : root_(root) {
  const fs::path sysfs = root / "sys";
  find_energy(sysfs);
  for (const fs::path& domain : entries_of(sysfs / "fs/resctrl/mon_data"))
    if (is_shown(domain / "mbm_total_bytes")) memory_traffic_.push_back(domain / "mbm_total_bytes");
  find_infiniband(sysfs);
}

void HostCounters::find_energy(const fs::path& sysfs) {
  std::vector<fs::path> domains = entries_of(sysfs / "class/powercap");
  // Where both can be read, the registers: what is memory-mapped may update less often.
  std::stable_partition(domains.begin(), domains.end(), [](const fs::path& domain) {
    return domain.filename().string().starts_with("intel-rapl:");
  });
  std::map<std::string, EnergyCounter> by_name;
  for (const fs::path& domain : domains) {
    const std::string name = line_of(domain / "name");
    const bool of_memory = name == "dram";
    if (!of_memory && !name.starts_with("package")) continue;
    const fs::path file = domain / "energy_uj";
    const EnergyCounter counter{file, number_in(domain / "max_energy_range_uj"), of_memory,
                                counter_in(file)};
    EnergyCounter& known = by_name.try_emplace(full_name(domain), counter).first->second;
    if (std::isnan(known.last_uj)) known = counter;
  }
  for (auto& [name, counter] : by_name)
    energy_.push_back(std::move(counter));
}

void HostCounters::find_infiniband(const fs::path& sysfs) {
  constexpr double kInfinibandUnit_bytes = 4;
  for (const fs::path& adapter : entries_of(sysfs / "class/infiniband"))
    for (const fs::path& port : entries_of(adapter / "ports"))
      for (const auto& [file, sent] :
           {std::pair{"counters/port_xmit_data", true}, {"counters/port_rcv_data", false}})
        if (is_shown(port / file))
          infiniband_.push_back({port / file, kInfinibandUnit_bytes, sent});
}

double HostCounters::advance(EnergyCounter& counter) {
  const double now_uj = counter_in(counter.file);
  if (std::isnan(now_uj)) return now_uj;
  const double passed_uj = std::isnan(counter.last_uj) ? 0 : now_uj - counter.last_uj;
  counter.sum_j += 1e-6 * (passed_uj < 0 ? passed_uj + counter.range_uj : passed_uj);
  counter.last_uj = now_uj;
  return counter.sum_j;
}

/// One that comes later counts from then on, and what one has counted that is gone stays.
void HostCounters::advance_interfaces() {
  for (const InterfaceBytes& now : interfaces_that_count(root_)) {
    const InterfaceCounter begin{0, 0, began_ ? now.sent : 0, began_ ? now.received : 0};
    InterfaceCounter& counter = interfaces_.try_emplace(now.name, begin).first->second;
    counter.sent_bytes += passed(now.sent, counter.last_sent_bytes);
    counter.received_bytes += passed(now.received, counter.last_received_bytes);
    counter.last_sent_bytes = now.sent;
    counter.last_received_bytes = now.received;
  }
  began_ = true;
}

HostReading HostCounters::read() {
  HostReading reading;
  reading.at_s = now_s();
  std::vector<double> packages, memories, traffic, sent, received;
  for (EnergyCounter& counter : energy_)
    (counter.of_memory ? memories : packages).push_back(advance(counter));
  for (const fs::path& file : memory_traffic_)
    traffic.push_back(counter_in(file));
  advance_interfaces();
  for (const auto& [name, counter] : interfaces_) {
    sent.push_back(counter.sent_bytes);
    received.push_back(counter.received_bytes);
  }
  for (const TrafficCounter& counter : infiniband_)
    (counter.sent ? sent : received).push_back(counter_in(counter.file) * counter.unit_bytes);
  reading.package_energy_j = sum_of(packages);
  reading.memory_energy_j = sum_of(memories);
  reading.memory_traffic_bytes = sum_of(traffic);
  reading.sent_bytes = sum_of(sent);
  reading.received_bytes = sum_of(received);
  return reading;
}

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ProcessUsage process_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_nvcsw, usage.ru_nivcsw};
}

std::string room_text(const std::string& host) {
  std::error_code error;
  const auto space = fs::space(kSharedMemory, error);
  if (error) return fmt::format("{} on {}: {}", kSharedMemory, host, error.message());
  return fmt::format("{} on {} has {} free of {}", kSharedMemory, host,
                     format_bytes(static_cast<std::int64_t>(space.available)),
                     format_bytes(static_cast<std::int64_t>(space.capacity)));
}

}  // namespace gradsync
