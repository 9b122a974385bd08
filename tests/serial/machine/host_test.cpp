// SPDX-License-Identifier: BSD-3-Clause
#include "machine/host.h"

#include <cmath>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include <doctest/doctest.h>

#include "base/file.h"
#include "serial/test_folder.h"

namespace gradsync {
TEST_CASE("host: hardware as the kernel states it, and nothing where it states nothing") {
  const FakeRoot root;
  CHECK(host_hardware(root.path()).processors == 0);
  CHECK(host_hardware(root.path()).caches.empty());
  root.state("proc/cpuinfo",
             "processor : 0\nphysical id : 0\nprocessor : 1\nphysical id : 0\nprocessor : 2\n"
             "physical id : 1\nprocessor : 3\nphysical id : 1");
  root.state("proc/meminfo", "MemTotal:       16384 kB\nMemFree:  1 kB");
  root.state("sys/devices/system/node/node0/cpulist", "0-1");
  root.state("sys/devices/system/node/node1/cpulist", "2-3");
  root.state("sys/devices/system/node/has_cpu", "0-1");
  const std::string cache = "sys/devices/system/cpu/cpu0/cache/index";
  for (const auto& [index, level, type, size] : {std::tuple{0, "1", "Data", "48K"},
                                                 {1, "1", "Instruction", "32K"},
                                                 {2, "2", "Unified", "1024K"}}) {
    root.state(cache + std::to_string(index) + "/level", level);
    root.state(cache + std::to_string(index) + "/type", type);
    root.state(cache + std::to_string(index) + "/size", size);
  }
  root.state(cache + "3/level", "3");  // of no stated size
  root.state(cache + "3/type", "Unified");
  root.state("sys/class/net/eth0/operstate", "up");
  root.state("sys/class/net/eth0/speed", "25000");
  root.state("sys/class/net/eth0/device/vendor", "0x15b3");
  root.state("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  root.state("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
  const HostHardware host = host_hardware(root.path());
  CHECK(host.processors == 4);
  CHECK(host.sockets == 2);
  CHECK(host.numa_nodes == 2);
  CHECK(host.memory_bytes == 16 << 20);
  CHECK(host.caches == "L1d 48 KiB, L2 1 MiB");
  CHECK(host.network == "mlx5_0 port 1 200 Gbit/s, eth0 25 Gbit/s");
}

TEST_CASE("host: this one has processors and memory") {
  const HostHardware host = host_hardware();
  CHECK(host.processors > 0);
  CHECK(host.memory_bytes > 0);
}

TEST_CASE("host: counters, and what is not readable") {
  const FakeRoot root;
  const HostReading nothing = HostCounters(root.path()).read();
  CHECK(nothing.at_s > 0);
  CHECK(std::isnan(nothing.package_energy_j));
  CHECK(std::isnan(nothing.memory_traffic_bytes));
  CHECK(std::isnan(nothing.sent_bytes));

  const auto domain = [&](const std::string& folder, const std::string& name,
                          const std::string& energy_uj) {
    root.state("sys/class/powercap/" + folder + "/name", name);
    root.state("sys/class/powercap/" + folder + "/energy_uj", energy_uj);
    root.state("sys/class/powercap/" + folder + "/max_energy_range_uj", "10000000");
  };
  domain("intel-rapl:0", "package-0", "1000000");
  domain("intel-rapl:0:0", "core", "500000");  // a part of the package
  domain("intel-rapl:0:1", "dram", "0");
  domain("intel-rapl:1", "package-1", "9000000");
  root.state("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "100");
  root.state("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "23");
  const std::string interfaces =
      "Inter-|   Receive                            |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
      "    lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
      "  eth0:       5    1    0    0    0     0          0         0     1000       9    0\n"
      "br0: 5 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n"
      "ib0: 9 1 0 0 0 0 0 0 9000 1 0 0 0 0 0 0\n";
  root.state("sys/class/net/ib0/type", "32");
  root.state("sys/class/net/ib0/device/vendor", "0x15b3");
  root.state("proc/net/dev", interfaces);
  root.state("sys/class/net/eth0/device/vendor", "0x15b3");
  root.state("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "250");
  HostCounters counters(root.path());
  domain("intel-rapl:0", "package-0", "3000000");
  domain("intel-rapl:0:1", "dram", "400000");
  domain("intel-rapl:1", "package-1", "500000");  // it began again at 0
  const HostReading reading = counters.read();
  CHECK(reading.package_energy_j == doctest::Approx(2 + 1.5));
  CHECK(reading.memory_energy_j == doctest::Approx(0.4));
  CHECK(reading.memory_traffic_bytes == 123);
  CHECK(reading.sent_bytes == 1000 + 4 * 250);  // neither lo nor the bridge
  CHECK(reading.received_bytes == 5);
  std::filesystem::remove_all(root.path() / "sys/class/net/eth0");
  std::filesystem::remove_all(root.path() / "sys/class/infiniband");
  CHECK(HostCounters(root.path()).read().sent_bytes == 2000);  // none is hardware
  domain("intel-rapl:0", "package-0", "3000000");
  domain("intel-rapl:0", "package-0", "3500000");
  CHECK(counters.read().package_energy_j == doctest::Approx(4));
}

TEST_CASE(
    "host: a package with two interfaces counts once, by its registers where these can be read") {
  const FakeRoot root;
  const auto domain = [&](const std::string& folder, const std::string& name,
                          const std::string& energy_uj) {
    root.state("sys/class/powercap/" + folder + "/name", name);
    root.state("sys/class/powercap/" + folder + "/energy_uj", energy_uj);
    root.state("sys/class/powercap/" + folder + "/max_energy_range_uj", "100000000");
  };
  domain("intel-rapl-mmio:0", "package-0", "0");
  domain("intel-rapl:0", "package-0", "0");
  domain("intel-rapl:1", "package-1", "0");
  // Parts of one name are of two packages.
  domain("intel-rapl:0:1", "dram", "0");
  domain("intel-rapl-mmio:0:0", "dram", "0");
  domain("intel-rapl:1:1", "dram", "0");
  HostCounters counters(root.path());
  domain("intel-rapl-mmio:0", "package-0", "2900000");
  domain("intel-rapl:0", "package-0", "3000000");
  domain("intel-rapl:1", "package-1", "4000000");
  domain("intel-rapl:0:1", "dram", "500000");
  domain("intel-rapl-mmio:0:0", "dram", "500000");
  domain("intel-rapl:1:1", "dram", "700000");
  const HostReading reading = counters.read();
  CHECK(reading.package_energy_j == doctest::Approx(7));
  CHECK(reading.memory_energy_j == doctest::Approx(1.2));
  domain("intel-rapl:0", "package-0", "no number");
  HostCounters mapped(root.path());
  domain("intel-rapl-mmio:0", "package-0", "4900000");
  CHECK(mapped.read().package_energy_j == doctest::Approx(2));
}

TEST_CASE("host: a sum without one of its parts is not known, and does not jump afterwards") {
  for (const bool first : {true, false}) {
    CAPTURE(first);
    const FakeRoot root;
    const auto traffic = [&](const std::string& lost, const std::string& other) {
      root.state("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", first ? lost : other);
      root.state("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", first ? other : lost);
    };
    const auto energy = [&](const std::string& lost, const std::string& other) {
      for (const auto& [name, text] :
           {std::pair{"0", first ? lost : other}, {"1", first ? other : lost}}) {
        root.state(std::string("sys/class/powercap/intel-rapl:") + name + "/energy_uj", text);
        root.state(std::string("sys/class/powercap/intel-rapl:") + name + "/name",
                   std::string("package-") + name);
      }
    };
    const auto sent = [&](const std::string& lost, const std::string& other) {
      root.state("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
                 first ? lost : other);
      root.state("sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data",
                 first ? other : lost);
    };
    traffic("Unavailable", "1000");
    energy("", "1000000");
    sent("N/A (no PMA)", "10");
    HostCounters counters(root.path());
    HostReading reading = counters.read();
    CHECK(std::isnan(reading.memory_traffic_bytes));
    CHECK(std::isnan(reading.package_energy_j));
    CHECK(std::isnan(reading.sent_bytes));
    traffic("900000", "1500");
    energy("700000000", "2000000");
    sent("800000", "20");
    reading = counters.read();
    CHECK(reading.memory_traffic_bytes == 901500);
    CHECK(reading.package_energy_j == doctest::Approx(1));  // the other one counts from now on
    CHECK(reading.sent_bytes == 4 * 800020);
    traffic("900000", "Unavailable");
    energy("700000000", "");
    sent("800000", "");
    reading = counters.read();
    CHECK(std::isnan(reading.memory_traffic_bytes));
    CHECK(std::isnan(reading.package_energy_j));
    CHECK(std::isnan(reading.sent_bytes));
    energy("701000000", "5000000");
    CHECK(counters.read().package_energy_j == doctest::Approx(5));
  }
}

TEST_CASE("host: interfaces that come and go do not change what was counted before") {
  const FakeRoot root;
  const auto state = [&](const std::string& interfaces) {
    root.state("proc/net/dev", "Inter-|   Receive\n face |bytes\n" + interfaces);
  };
  const std::string eth0 = "eth0: 10 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n";
  state(eth0);
  HostCounters counters(root.path());
  CHECK(counters.read().sent_bytes == 100);
  state(eth0 + "veth1: 70 1 0 0 0 0 0 0 9000 1 0 0 0 0 0 0\n");
  CHECK(counters.read().sent_bytes == 100);
  state(eth0 + "veth1: 75 1 0 0 0 0 0 0 9500 1 0 0 0 0 0 0\n");
  CHECK(counters.read().sent_bytes == 600);
  CHECK(counters.read().received_bytes == 15);
  state(eth0);
  CHECK(counters.read().sent_bytes == 600);
  state(eth0 + "veth1: 1 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n");  // made again
  CHECK(counters.read().sent_bytes == 650);
}

TEST_CASE("host: an interface that /sys does not show counts like one without hardware") {
  const FakeRoot root;
  root.state("proc/net/dev",
             "Inter-|   Receive\n face |bytes\neth0: 10 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n");
  // A link to itself cannot be looked at, by root neither.
  std::filesystem::create_directories(root.path() / "sys/class/net");
  std::filesystem::create_symlink("eth0", root.path() / "sys/class/net/eth0");
  CHECK(HostCounters(root.path()).read().sent_bytes == 100);
  CHECK(host_hardware(root.path()).network.empty());
}

TEST_CASE("host: CPU time and context switches of this process") {
  const ProcessUsage before = process_usage();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  std::thread waits([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  while (process_usage().cpu_time_s - before.cpu_time_s < 0.02 &&
         std::chrono::steady_clock::now() < end + std::chrono::seconds(60)) {
  }
  waits.join();
  const ProcessUsage used = process_usage() - before;
  CHECK(used.cpu_time_s >= 0.02);
  CHECK(used.voluntary_switches >= 1);
  CHECK(used.involuntary_switches >= 0);
}

TEST_CASE("a periodic reader reads by itself, hands each reading over once and ends at once") {
  const auto begin = std::chrono::steady_clock::now();
  const auto counting = [count = 0]() mutable { return ++count; };
  {
    PeriodicReader<int> reader(counting, 0.1);
    int last = 0, takes = 0;
    for (; takes < 600 && last < takes + 3; ++takes) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (const int reading : reader.take()) {
        CHECK(reading == last + 1);
        last = reading;
      }
    }
    CHECK(last >= takes + 3);
    // Beside what take() reads at most ten a second, however slow this machine is.
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    CHECK(last <= takes + 2 + passed.count() * 10);
  }
  const PeriodicReader<int> slow(counting, 3600);
  CHECK_THROWS(PeriodicReader<int>(counting, 0.05));
}

}  // namespace gradsync

namespace gradsync {
namespace {

std::vector<Cores> masks(const std::vector<std::string>& lists) {
  std::vector<Cores> all;
  for (const std::string& list : lists)
    all.push_back(cores_in(list));
  return all;
}

std::vector<std::size_t> threads_of(const std::vector<std::string>& lists) {
  const auto ranks = masks(lists);
  std::vector<std::size_t> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    threads.push_back(fair_threads(ranks, rank));
  return threads;
}

/// Whether ranks of any subset have more threads than cores: Hall's condition, by all subsets.
bool short_by_subsets(const std::vector<RankCores>& ranks) {
  for (unsigned subset = 1; subset < 1U << ranks.size(); ++subset) {
    std::set<int> cores;
    std::size_t threads = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if ((subset >> rank & 1) != 0) {
        cores.insert(ranks[rank].cores.begin(), ranks[rank].cores.end());
        threads += ranks[rank].threads;
      }
    if (threads > cores.size()) return true;
  }
  return false;
}

using Counts = std::vector<std::size_t>;

}  // namespace

TEST_CASE("cores: lists as the kernel writes them") {
  CHECK(cores_in("0-3,8") == Cores{0, 1, 2, 3, 8});
  CHECK(cores_in("5") == Cores{5});
  for (const char* text : {"", "all", "3-", "0-99999999999", "-1-2", "0,"})
    CHECK_MESSAGE(cores_in(text).empty(), text);
}

TEST_CASE("cores: threads of ranks that share some of a host's cores") {
  CHECK(threads_of({"0-1", "0-1"}) == Counts{1, 1});
  CHECK(threads_of({"0-63", "0-63", "0-63", "0-63"}) == Counts{16, 16, 16, 16});
  // Bound to a socket of two, and to cores of their own.
  CHECK(threads_of({"0-7", "0-7", "8-15", "8-15"}) == Counts{4, 4, 4, 4});
  CHECK(threads_of({"0-7", "8-15"}) == Counts{8, 8});
  // A cpuset whose numbers do not begin at 0, and masks that overlap in part.
  CHECK(threads_of({"40-43", "40-43"}) == Counts{2, 2});
  CHECK(threads_of({"0-3", "3-6", "7"}) == Counts{2, 2, 1});
  CHECK(threads_of({"0", "0", "0"}) == Counts{1, 1, 1});
  CHECK(threads_of({"0-5"}) == Counts{6});
}

TEST_CASE("cores: a shortage is what any ranks of a host have, and names them") {
  const auto shortage = [](const std::vector<std::string>& lists, std::size_t threads) {
    std::vector<RankCores> ranks;
    for (const Cores& cores : masks(lists))
      ranks.push_back({cores, threads});
    return core_shortage(ranks);
  };
  CHECK_FALSE(shortage({}, 1));
  CHECK_FALSE(shortage({"0-1", "0-1"}, 1));
  CHECK_FALSE(shortage({"0", "1", "0-7"}, 1));
  CHECK_FALSE(shortage({"0-7", "0"}, 1));
  CHECK(shortage({"0-1", "0-1"}, 2) == CoreShortage{2, 4, 2});
  CHECK(shortage({"0", "0", "1-7"}, 1) == CoreShortage{2, 2, 1});
  CHECK(shortage({"0-1", "1-2", "4-9"}, 2) == CoreShortage{2, 4, 3});
  CHECK(shortage({"0-1", "1-2", "0,2", "0-2", "5-9"}, 1) == CoreShortage{4, 4, 3});
}

TEST_CASE("cores: a shortage is found where there is one, and fair threads make none") {
  std::mt19937 random(7);
  const auto below = [&](unsigned bound) { return random() % bound; };
  int shortages = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<RankCores> ranks(1 + below(5));
    std::vector<Cores> cores;
    for (RankCores& rank : ranks) {
      std::set<int> mask;
      for (unsigned i = 0; i < 1 + below(6); ++i)
        mask.insert(static_cast<int>(below(9)));
      rank = {Cores(mask.begin(), mask.end()), 1 + below(3)};
      cores.push_back(rank.cores);
    }
    const auto found = core_shortage(ranks);
    REQUIRE(found.has_value() == short_by_subsets(ranks));
    if (found) CHECK(found->threads > found->cores);
    shortages += found ? 1 : 0;
    bool enough = true;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].threads = fair_threads(cores, rank);
      enough &= cores[rank].size() >= sharers_of(cores, rank).size();
    }
    if (enough) REQUIRE_FALSE(core_shortage(ranks));
  }
  CHECK(shortages > 300);
  CHECK(shortages < 2700);
}

}  // namespace gradsync
