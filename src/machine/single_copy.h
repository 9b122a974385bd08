#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Open MPI 4 copies long messages between the ranks of a host from process to process (CMA:
/// process_vm_readv). The kernel allows that within one user namespace only, and where each rank is
/// in a container of its own Open MPI 4.1 changes to another way, in which messages of some
/// megabytes hang.
namespace gradsync {

/// The hosts with ranks in different user namespaces. `hosts` and `namespaces` are by rank; a
/// namespace is 0 where that rank's MPI does not copy in this way.
std::vector<std::string> hosts_where_cma_fails(const std::vector<std::string>& hosts,
                                               const std::vector<std::uint64_t>& namespaces);

inline constexpr const char* kCmaFix =
    "mpirun --mca btl_vader_single_copy_mechanism none …, under srun export "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none; or start all ranks of a host in one container";

}  // namespace gradsync
