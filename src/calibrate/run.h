#pragma once

#include <string>

#include "collectives/options.h"
#include "comm/session.h"

namespace gradsync::calibrate {

/// A whole calibration on the ranks of `session`: agreement, measuring, output. Returns the exit
/// code; errors end the job through the session, wrong values with kCheckFailed after all output is
/// written. Collective.
int run_calibration(const Session& session, const CalibrateOptions& options,
                    const OptionValues& values, const std::string& command_line);

/// The sizes of the buckets of a run file, read by rank 0, on all ranks. Collective.
std::vector<BucketShape> shared_bucket_shapes(const Session& session, const std::string& path);

}  // namespace gradsync::calibrate
