// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/table.h"
#include "exchange/exchange.h"
#include "options/options.h"
#include "sync/buckets.h"
#include "train/batch_source.h"
#include "train/compute_settings.h"
#include "train/iteration.h"

namespace gradsync {

/// Trains a few iterations in every mode from one seed on the run's own data and compares the
/// parameters: bit for bit across ranks, and within a stated tolerance with those of `allreduce`.
///
/// With more than one rank `none` is expected to fail both comparisons: a line that shows that they
/// can. Collective; all ranks return the same rows.
std::vector<VerificationRow> verify_modes(Exchange& exchange, const DataSource& data,
                                          const TrainOptions& options,
                                          const ComputeSettings& compute);

/// The rows of --verify-modes.
Table verification_table(const std::vector<VerificationRow>& rows);

/// The times at which the gradients of a backward pass are ready: medians over a few steps of a
/// copy that exchanges nothing, on the slowest rank. Of ranks on CPUs. Collective.
GradientTimeline gradient_timeline(Exchange& exchange, const DataSource& data,
                                   const ComputeSettings& compute, const TrainOptions& options);
/// Times of all-reduces of messages of up to so many bytes on a communication thread, medians of
/// the slowest rank, and between the sizes measured on straight lines: links that are faster for
/// small messages follow no one law. Collective.
AllReduceTime all_reduce_time(Exchange& exchange, std::int64_t largest_bytes,
                              const std::string& wire_dtype);

}  // namespace gradsync
