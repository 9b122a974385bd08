#pragma once

#include <cstdint>
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

/// Two hosts, by a rank of each, exchanging data both ways.
struct LinkFacts {
  std::string hosts;         ///< "node01 and node02"
  double latency_s = 0;      ///< shortest exchange of one value
  double bandwidth_Bps = 0;  ///< of the shortest exchange of 1 MiB, each way
  std::int64_t wrong = 0;    ///< values that did not arrive as they were sent
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkFacts, hosts, latency_s, bandwidth_Bps, wrong)

inline constexpr std::int64_t kSmallSum_bytes = 4096, kLargeSum_bytes = std::int64_t{4} << 20;

/// The pairs of `hosts` hosts (numbers from 0) that are measured, one after the other: all of up to
/// twelve, else each with its neighbor in a ring.
std::vector<std::pair<int, int>> pairs_to_measure(int hosts);

Finding judge_sums(const Ranks<SumFacts>& ranks);
/// `links` of all pairs that were measured.
CheckResult judge_links(const std::vector<LinkFacts>& links);

/// Whether data arrives as it was sent, and how fast: a sum over all ranks, and pairs of hosts.
CheckResult check_links(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
