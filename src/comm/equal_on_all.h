#pragma once

#include <cstdint>

#include <mpi.h>

namespace gradsync {

/// What it sends to be compared.
inline constexpr std::int64_t kEqualOnAllBytes = 2 * sizeof(std::uint64_t);

/// Whether every rank of `comm` gave the same value; all get the same answer. Collective.
bool equal_on_all(MPI_Comm comm, std::uint64_t value);

}  // namespace gradsync
