#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "check/check.h"
#include "machine/host.h"

namespace gradsync {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NominalRate, name, rate_Bps)

}  // namespace gradsync

/// Clocks, and links between ranks. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- clocks: whether the hosts have the same time of day, and how closely steady clocks can be
// aligned.

/// One rank's clocks, seconds.
struct ClockFacts {
  double wall_minus_steady_s = 0;  ///< what its clock of the day reads above its steady clock
  double offset_s = 0;             ///< add to its steady clock to read rank 0's
  double uncertainty_s = 0;        ///< of the offset
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockFacts, wall_minus_steady_s, offset_s, uncertainty_s)

/// How far this rank's clock of the day is ahead of rank 0's at the same instant:
/// (wall − steady) − (wall − steady of rank 0) − offset.
double ahead_s(const ClockFacts& facts, const ClockFacts& of_root);

std::vector<Finding> judge_clocks(const Ranks<ClockFacts>& ranks);

// --- links: whether data arrives as it was sent, and how fast: a sum over all ranks, and pairs of
// hosts.

/// What one rank measured of the sum over all ranks; shortest of a few calls.
struct SumFacts {
  double small_s = 0, large_s = 0;
  std::int64_t wrong = 0;  ///< values that are not the sum
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SumFacts, small_s, large_s, wrong)

/// A device whose PCIe link has fewer lanes or a lower speed than the device has.
struct NarrowSlot {
  std::string device;        ///< "mlx5_0", "GPU 0000:17:00.0"
  std::string now, largest;  ///< "x8 16.0 GT/s PCIe"
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NarrowSlot, device, now, largest)

/// The narrow slots of InfiniBand adapters, network interfaces and NVIDIA GPUs. A GPU lowers the
/// speed of its link while it is idle, so only its lanes count.
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

/// The NVLinks of the GPU that a rank drives; 0 links where it has none, or there is no GPU.
struct NvlinkFacts {
  std::string gpu;  ///< its kind
  int up = 0, all = 0;
  double rate_Bps = 0;  ///< of each that is up, one way, as the driver states it; 0: unknown
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NvlinkFacts, gpu, up, all, rate_Bps)
/// Against the nominal rate: all links of that kind of GPU at the highest rate that one of the job
/// has. Below `least_share` of it fails.
Finding judge_nvlinks(const Ranks<NvlinkFacts>& ranks, double least_share = 0);

}  // namespace gradsync::check
