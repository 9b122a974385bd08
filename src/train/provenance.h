#pragma once

#include <vector>

#include "comm/places.h"
#include "data/cifar10.h"
#include "record/run.h"
#include "step/compute_settings.h"

namespace gradsync {

/// What every program records of its machine, and LibTorch's version, the data set and its digests,
/// and how the run computes.
std::vector<NamedText> provenance(const DataDigest& data, const ComputeSettings& compute);

}  // namespace gradsync
