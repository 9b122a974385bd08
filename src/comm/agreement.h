#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/session.h"
#include "record/run.h"

namespace gradsync {

/// Ends the job with kRanksDisagree, naming both ranks and both values, unless every rank states
/// the same values under the same names. Collective.
void require_agreement(const Session& session, const std::vector<NamedText>& stated);

/// One text of each rank, of any length, in order of rank on rank 0; empty elsewhere. Collective.
std::vector<std::string> gather_texts(const Session& session, const std::string& mine);

/// What it sends to be compared.
inline constexpr std::int64_t kEqualOnAllBytes = 2 * sizeof(std::uint64_t);

/// Whether every rank of `comm` gave the same value; all get the same answer. Collective.
bool equal_on_all(MPI_Comm comm, std::uint64_t value);

}  // namespace gradsync
