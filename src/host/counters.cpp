#include "host/counters.h"

#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "host/sysfs.h"
#include "timing/clock.h"

namespace gradsync {

namespace fs = std::filesystem;

namespace {

/// A sum whose first value takes the place of NaN.
void add_to(double& sum, double value) {
  sum = std::isnan(sum) ? value : sum + value;
}

struct InterfaceBytes {
  std::string name;
  double sent = 0, received = 0;
};

/// Those of this process's network namespace, which /sys may not be of; without loopback.
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
    if (fs::exists(folder(one) / "device")) hardware.push_back(one);
  return hardware.empty() ? all : hardware;
}

}  // namespace

HostCounters::HostCounters(const fs::path& root) : root_(root) {
  const fs::path sysfs = root / "sys";
  for (const fs::path& domain : entries_of(sysfs / "class/powercap"))
    find_energy(domain);
  for (const fs::path& domain : entries_of(sysfs / "fs/resctrl/mon_data"))
    if (fs::exists(domain / "mbm_total_bytes"))
      memory_traffic_.push_back(domain / "mbm_total_bytes");
  find_infiniband(sysfs);
}

void HostCounters::find_energy(const fs::path& domain) {
  const std::string name = line_of(domain / "name");
  const bool of_memory = name == "dram";
  if (!of_memory && !name.starts_with("package")) return;
  EnergyCounter counter;
  counter.file = domain / "energy_uj";
  counter.of_memory = of_memory;
  counter.range_uj = number_in(domain / "max_energy_range_uj");
  counter.last_uj = counter_in(counter.file);
  if (!std::isnan(counter.last_uj)) energy_.push_back(counter);
}

void HostCounters::find_infiniband(const fs::path& sysfs) {
  constexpr double kInfinibandUnit_bytes = 4;
  for (const fs::path& adapter : entries_of(sysfs / "class/infiniband"))
    for (const fs::path& port : entries_of(adapter / "ports")) {
      infiniband_.push_back({port / "counters/port_xmit_data", kInfinibandUnit_bytes, true});
      infiniband_.push_back({port / "counters/port_rcv_data", kInfinibandUnit_bytes, false});
    }
}

void HostCounters::advance(EnergyCounter& counter) {
  const double now_uj = counter_in(counter.file);
  if (std::isnan(now_uj)) return;
  const double passed_uj = now_uj - counter.last_uj;
  counter.sum_j += 1e-6 * (passed_uj < 0 ? passed_uj + counter.range_uj : passed_uj);
  counter.last_uj = now_uj;
}

void HostCounters::add_interfaces(HostReading& reading) const {
  for (const InterfaceBytes& one : interfaces_that_count(root_)) {
    add_to(reading.sent_bytes, one.sent);
    add_to(reading.received_bytes, one.received);
  }
}

HostReading HostCounters::read() {
  HostReading reading;
  reading.at_s = now_s();
  for (EnergyCounter& counter : energy_) {
    advance(counter);
    add_to(counter.of_memory ? reading.memory_energy_j : reading.package_energy_j, counter.sum_j);
  }
  for (const fs::path& file : memory_traffic_)
    add_to(reading.memory_traffic_bytes, counter_in(file));
  add_interfaces(reading);
  for (const TrafficCounter& counter : infiniband_)
    if (const double count = counter_in(counter.file); !std::isnan(count))
      add_to(counter.sent ? reading.sent_bytes : reading.received_bytes,
             count * counter.unit_bytes);
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

}  // namespace gradsync
