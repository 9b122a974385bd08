#pragma once

#include "record/hdf5_input.h"
#include "record/run.h"

namespace gradsync {

/// Throws Error kBadData for a file of another schema, or of a newer version (both are named).
void require_schema(const Hdf5Input& file);

/// What an HDF5 run file says of the run as a whole: attributes, /config, /provenance, /topology.
/// Throws Error kBadData, also for a topology without ranks.
RunInfo read_run_info(const Hdf5Input& file);

}  // namespace gradsync
