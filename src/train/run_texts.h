#pragma once

#include <string>
#include <vector>

#include "base/table.h"
#include "comm/places.h"
#include "data/cifar10.h"
#include "machine/gpus.h"
#include "options/options.h"
#include "options/transport_choice.h"
#include "record/run.h"
#include "train/batch_source.h"
#include "train/compute_settings.h"

namespace gradsync {

/// What rank 0 says of a run before it trains: on stdout, with warnings on stderr.
void print_environment(const TrainOptions& options, const DataDigest& digest, const RunData& data,
                       const ComputeSettings& compute, const std::vector<RankPlace>& places);
void print_device(const DeviceChoice& device, const TransportChoice& transport);

/// The rows of --verify-modes.
Table verification_table(const std::vector<VerificationRow>& rows);

/// Each host once, "n1,n2".
std::string hosts_of(const std::vector<RankPlace>& places);

/// What every program records of its machine, and LibTorch's version, the data set and its digests,
/// and how the run computes.
std::vector<NamedText> provenance(const DataDigest& data, const ComputeSettings& compute);

}  // namespace gradsync
