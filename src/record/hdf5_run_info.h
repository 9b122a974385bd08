#pragma once

#include "record/hdf5_input.h"
#include "record/run.h"

namespace gradsync {

/// What an HDF5 run file says of the run as a whole: attributes, /config, /provenance, /topology.
/// Throws Error kBadData, also for another schema, a newer version of it (both are named) and a
/// topology without ranks.
RunInfo read_run_info(const Hdf5Input& file);

}  // namespace gradsync
