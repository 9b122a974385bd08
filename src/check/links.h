#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// What one rank measured of the sum over all ranks; shortest of a few calls.
struct SumFacts {
  double small_s = 0, large_s = 0;
  std::int64_t wrong = 0;  ///< values that are not the sum
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SumFacts, small_s, large_s, wrong)

/// What an interface or adapter of a host says it can do.
struct NominalRate {
  std::string name;     ///< "mlx5_0 port 1", "eth0"
  double rate_Bps = 0;  ///< each way
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NominalRate, name, rate_Bps)

/// A device whose PCIe link has fewer lanes or a lower speed than the device has.
struct NarrowSlot {
  std::string device;        ///< "mlx5_0", "GPU 0000:17:00.0"
  std::string now, largest;  ///< "x8 16.0 GT/s PCIe"
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NarrowSlot, device, now, largest)

/// The fastest active port: of InfiniBand adapters (`class/infiniband`), else of the network
/// interfaces that are up and are hardware (`class/net`). Without a name where none states a rate.
NominalRate nominal_rate(const std::filesystem::path& sysfs);
/// Of InfiniBand adapters, network interfaces and NVIDIA GPUs. A GPU lowers the speed of its link
/// while it is idle, so only its lanes count.
std::vector<NarrowSlot> narrow_slots(const std::filesystem::path& sysfs);

/// Three significant digits: "12.3 GB/s", "2.60 MB/s".
std::string rate_text(double rate_Bps);

/// Two hosts, by a rank of each, exchanging data both ways.
struct LinkFacts {
  std::string hosts;         ///< "node01 and node02"
  double latency_s = 0;      ///< shortest exchange of one value
  double bandwidth_Bps = 0;  ///< of the shortest exchange of 1 MiB, each way
  std::int64_t wrong = 0;    ///< values that did not arrive as they were sent
  NominalRate nominal = {};  ///< of the slower host's fastest port; 0: unknown
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkFacts, hosts, latency_s, bandwidth_Bps, wrong, nominal)

inline constexpr std::int64_t kSmallSum_bytes = 4096, kLargeSum_bytes = std::int64_t{4} << 20;

/// The pairs of `hosts` hosts (numbers from 0) that are measured, one after the other: all of up to
/// twelve, else each with its neighbor in a ring.
std::vector<std::pair<int, int>> pairs_to_measure(int hosts);

Finding judge_sums(const Ranks<SumFacts>& ranks);
/// `links` of all pairs that were measured; `least_share` of their nominal rate is required, 0 for
/// a warning below half of it.
CheckResult judge_links(const std::vector<LinkFacts>& links, double least_share = 0);
/// What each host's first rank saw; `looked` is false on the others.
struct SlotFacts {
  bool looked = false;
  std::vector<NarrowSlot> narrow;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SlotFacts, looked, narrow)
Finding judge_slots(const Ranks<SlotFacts>& ranks);

/// Whether data arrives as it was sent, and how fast: a sum over all ranks, and pairs of hosts.
CheckResult check_links(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
