// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

/// Open MPI 4 copies long messages between the ranks of a host from process to process (CMA:
/// process_vm_readv). The kernel allows that within one user namespace only, and where each rank is
/// in a container of its own Open MPI 4.1 changes to another way, in which messages of some
/// megabytes hang.
namespace gradsync {

/// The hosts with ranks in different user namespaces. `hosts` and `namespaces` are by rank; a
/// namespace is 0 where that rank's MPI does not copy in this way.
inline std::vector<std::string> hosts_where_cma_fails(
    const std::vector<std::string>& hosts, const std::vector<std::uint64_t>& namespaces) {
  std::map<std::string, std::set<std::uint64_t>> of_host;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (namespaces[rank] != 0) of_host[hosts[rank]].insert(namespaces[rank]);
  std::vector<std::string> failing;
  for (const auto& [host, numbers] : of_host)
    if (numbers.size() > 1) failing.push_back(host);
  return failing;
}

inline constexpr const char* kCmaFix =
    "mpirun --mca btl_vader_single_copy_mechanism none …, under srun export "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none; or start all ranks of a host in one container";

}  // namespace gradsync
