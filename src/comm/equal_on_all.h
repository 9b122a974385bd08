#pragma once

#include <cstdint>

#include <mpi.h>

namespace gradsync {

/// Whether every rank of `comm` gave the same value; all get the same answer. Collective.
bool equal_on_all(MPI_Comm comm, std::uint64_t value);

}  // namespace gradsync
