#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

namespace gradsync {

/// What the counters of a host say at one moment, each since some moment before; NaN for what this
/// process may not read. They count what all processes of the host do.
struct HostReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double at_s = kUnknown;  ///< steady clock of this rank
  /// RAPL: processor packages, and memory where it is counted apart. The kernel lets root alone
  /// read them unless the site allows it.
  double package_energy_j = kUnknown, memory_energy_j = kUnknown;
  /// resctrl's monitoring of memory bandwidth, where it is mounted.
  double memory_traffic_bytes = kUnknown;
  /// Of the network interfaces that are hardware (without any, of all but loopback) and of the
  /// ports of InfiniBand adapters.
  double sent_bytes = kUnknown, received_bytes = kUnknown;
};

/// Reads the counters of a host. `root` holds proc and sys. Of one thread.
class HostCounters {
 public:
  explicit HostCounters(const std::filesystem::path& root = "/");

  HostReading read();

 private:
  /// RAPL's counters begin again at 0 behind a largest value.
  struct EnergyCounter {
    std::filesystem::path file;
    double range_uj = 0, last_uj = 0, sum_j = 0;
    bool of_memory = false;
  };
  struct TrafficCounter {
    std::filesystem::path file;
    double unit_bytes = 1;
    bool sent = false;
  };

  void find_energy(const std::filesystem::path& domain);
  void find_infiniband(const std::filesystem::path& sysfs);
  void add_interfaces(HostReading& reading) const;
  static void advance(EnergyCounter& counter);

  std::vector<EnergyCounter> energy_;
  std::vector<std::filesystem::path> memory_traffic_;
  std::vector<TrafficCounter> infiniband_;
  std::filesystem::path root_;
};

/// What this process has used since it started, all its threads together (getrusage).
struct ProcessUsage {
  double cpu_time_s = 0;  ///< user and system
  /// Times that a thread gave its core away to wait, and that it was taken away.
  std::int64_t voluntary_switches = 0, involuntary_switches = 0;
};

inline ProcessUsage operator-(const ProcessUsage& now, const ProcessUsage& before) {
  return {now.cpu_time_s - before.cpu_time_s, now.voluntary_switches - before.voluntary_switches,
          now.involuntary_switches - before.involuntary_switches};
}

/// Takes about a microsecond.
ProcessUsage process_usage();

}  // namespace gradsync
