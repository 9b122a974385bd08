// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "stats/statistics.h"

/// Files of one value, as the kernel gives them in /sys and /proc.

namespace gradsync {

/// The first line; empty where there is no such file.
std::string line_of(const std::filesystem::path& file);

/// The number that the first line begins with; 0 without one.
double number_in(const std::filesystem::path& file);

/// number_in(), but NaN without one: counters begin at 0.
double counter_in(const std::filesystem::path& file);

/// In order of their names; empty where there is no such folder.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// What an interface or adapter of a host says it can do.
struct NominalRate {
  std::string name;     ///< "mlx5_0 port 1", "eth0"
  double rate_Bps = 0;  ///< each way
};

/// The active ports that state a rate: of InfiniBand adapters (`class/infiniband` of `sysfs`), then
/// the network interfaces that are up and are hardware (`class/net`).
std::vector<NominalRate> nominal_rates(const std::filesystem::path& sysfs);

/// The fastest of them, an adapter before an interface. Without a name where there is none.
NominalRate nominal_rate(const std::filesystem::path& sysfs);

/// Whether this host has an InfiniBand adapter or one that looks like it.
bool has_infiniband();

/// Whether this host has an adapter that MPI drives past the kernel's TCP: InfiniBand, RoCE,
/// Omni-Path or EFA (all in /sys/class/infiniband), or Slingshot (/sys/class/cxi).
bool has_fast_network();

/// What a host is made of, as its kernel states it; 0 and an empty text where it does not.
struct HostHardware {
  std::int32_t processors = 0;  ///< logical ones that are online
  std::int32_t sockets = 0, numa_nodes = 0;
  std::int64_t memory_bytes = 0;
  std::string caches;   ///< of the first processor: "L1d 48 KiB, L2 1 MiB, L3 32 MiB"
  std::string network;  ///< active ports with their rates: "mlx5_0 port 1 200 Gbit/s"
};

/// `root` holds proc and sys.
HostHardware host_hardware(const std::filesystem::path& root = "/");

/// What the counters of a host say at one moment, each since some moment before. They count what
/// all processes of the host do. A sum over packages, domains, ports or interfaces is NaN where one
/// of them cannot be read at that moment.
struct HostReading {
  double at_s = kNotMeasured;  ///< steady clock of this rank
  /// RAPL: processor packages, and memory where it is counted apart. The kernel lets root alone
  /// read them unless the site allows it. A package that has two interfaces (its registers, and
  /// memory-mapped ones) counts once.
  double package_energy_j = kNotMeasured, memory_energy_j = kNotMeasured;
  /// resctrl's monitoring of memory bandwidth, where it is mounted.
  double memory_traffic_bytes = kNotMeasured;
  /// Bytes of the network interfaces that are hardware (without any, of all but loopback) and of
  /// the ports of InfiniBand adapters.
  double sent_bytes = kNotMeasured, received_bytes = kNotMeasured;
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

/// Reads counters at intervals from a thread of its own. A reading takes well below a millisecond
/// of that thread; the loop of training is not touched.
template <typename Reading>
class PeriodicReader {
 public:
  /// Throws Error kInternal for an interval below 0.1 s.
  PeriodicReader(std::function<Reading()> read, double interval_s)
      : read_(std::move(read)), interval_s_(interval_s) {
    constexpr double kShortest_s = 0.1;
    if (interval_s < kShortest_s)
      throw Error(ExitCode::kInternal, "counters are not read more often than ten times a second");
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  /// The readings since the last call, and one of now, in order of time.
  std::vector<Reading> take() {
    const std::lock_guard lock(mutex_);
    readings_.push_back(read_());
    return std::exchange(readings_, {});
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      readings_.push_back(read_());
      stopped_.wait_for(lock, stop, std::chrono::duration<double>(interval_s_),
                        [] { return false; });
    }
  }

  std::function<Reading()> read_;
  double interval_s_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<Reading> readings_;
  std::jthread thread_;  ///< last, so that it ends before what it uses
};

/// Which logical cores the ranks of a host may use, and whether they take them from each other.

/// Numbers of cores, ascending.
using Cores = std::vector<int>;

/// Cores of a list as the kernel writes it: "0-3,8". Empty for any other text.
Cores cores_in(const std::string& list);

/// A rank that computes with `threads` on any of `cores`.
struct RankCores {
  Cores cores;
  std::size_t threads = 1;
};

/// Ranks that have fewer cores between them than threads.
struct CoreShortage {
  std::size_t ranks = 0, threads = 0, cores = 0;
  bool operator==(const CoreShortage&) const = default;
};

/// Whether ranks of one host are oversubscribed: nothing where every thread of each rank can have a
/// core to itself. If all of them together have too few cores, that is named, else ranks that are
/// bound to too few.
std::optional<CoreShortage> core_shortage(const std::vector<RankCores>& ranks);

/// The ranks of a host that may use a core which rank `mine` may use, itself among them.
std::vector<std::size_t> sharers_of(const std::vector<Cores>& ranks, std::size_t mine);

/// With how many threads rank `mine` computes unless another number is given: its cores over the
/// number of its sharers, at least 1. If all ranks do so, none is short of cores, unless a rank has
/// fewer cores than sharers.
std::size_t fair_threads(const std::vector<Cores>& ranks, std::size_t mine);

/// Where MPI, NCCL and gradsync make the memory that processes of a host share.
inline constexpr const char* kSharedMemory = "/dev/shm";
/// "/dev/shm on node01 has 56 KiB free of 64 KiB".
std::string room_text(const std::string& host);
/// The fix where that is too little.
inline constexpr const char* kSharedMemoryFix =
    "make it larger (docker run --shm-size=1g, or --ipc=host; as root mount -o remount,size=1g "
    "/dev/shm), or give --transport mpi or tcp-ring";

}  // namespace gradsync
