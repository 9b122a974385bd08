#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace gradsync {

/// What the counters of a host say at one moment, each since some moment before. They count what
/// all processes of the host do. A sum over packages, domains, ports or interfaces is NaN where one
/// of them cannot be read at that moment.
struct HostReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double at_s = kUnknown;  ///< steady clock of this rank
  /// RAPL: processor packages, and memory where it is counted apart. The kernel lets root alone
  /// read them unless the site allows it. A package that has two interfaces (its registers, and
  /// memory-mapped ones) counts once.
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
    double range_uj = 0;
    bool of_memory = false;
    double last_uj = 0, sum_j = 0;
  };
  struct TrafficCounter {
    std::filesystem::path file;
    double unit_bytes = 1;
    bool sent = false;
  };

  /// Bytes of a network interface, since it was seen first or, if that was at the start, since
  /// before.
  struct InterfaceCounter {
    double sent_bytes = 0, received_bytes = 0, last_sent_bytes = 0, last_received_bytes = 0;
  };

  void find_energy(const std::filesystem::path& sysfs);
  void find_infiniband(const std::filesystem::path& sysfs);
  void advance_interfaces();
  static double advance(EnergyCounter& counter);

  std::vector<EnergyCounter> energy_;
  std::vector<std::filesystem::path> memory_traffic_;
  std::vector<TrafficCounter> infiniband_;
  std::map<std::string, InterfaceCounter> interfaces_;
  bool began_ = false;
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
