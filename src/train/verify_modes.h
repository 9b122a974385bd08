#pragma once

#include <string>
#include <vector>

#include "train/batch_source.h"
#include "train/compute_settings.h"
#include "train/step.h"

namespace gradsync {

/// Trains a few iterations in every mode from one seed on the run's own data and compares the
/// parameters: bit for bit across ranks, and within a stated tolerance with those of `allreduce`.
///
/// With more than one rank `none` is expected to fail both comparisons: a line that shows that they
/// can. Collective; all ranks return the same rows.
std::vector<VerificationRow> verify_modes(Exchange& exchange, const DataSource& data,
                                          const TrainOptions& options,
                                          const ComputeSettings& compute);

/// The settings of a mode that the options hold.
SyncSettings sync_settings(const TrainOptions& options);

/// Whose images a rank loads in a mode.
FeedShare feed_share(SyncMode& mode, int rank);

}  // namespace gradsync
