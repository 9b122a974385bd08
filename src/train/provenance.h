#pragma once

#include <string>
#include <vector>

#include "comm/clock_sync.h"
#include "comm/session.h"
#include "data/cifar10.h"
#include "record/run.h"
#include "train/compute_settings.h"

namespace gradsync {

/// Versions compiled against and loaded, the data set and its digests, how the run computes, and
/// the allow-listed environment (SLURM_ OMPI_ UCX_ NCCL_ CUDA_ OMP_ HDF5_, nothing that looks like
/// a secret).
std::vector<NamedText> provenance(const DataDigest& data, const ComputeSettings& compute);

/// Every rank's place, on rank 0 (empty elsewhere). Collective.
std::vector<RankPlace> gather_places(const Session& session, const ComputeSettings& compute,
                                     const ClockOffset& clock);

/// Whether an environment variable may be recorded.
bool may_record(const std::string& name);

/// A random UUID (version 4).
std::string new_uuid();

}  // namespace gradsync
