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

/// What --bucket-cap auto and --first-bucket auto came to.
struct BucketChoice {
  BucketAdvice chosen, as_default;  ///< and what PyTorch's sizes, 1 MiB and 25 MiB, would expose
  double latency_s = 0, bandwidth_bytes_per_s = 0;  ///< α and 1/β of the all-reduce measured
  double probe_s = 0;                               ///< what finding out took
};

/// Settles those of the two sizes that are `auto` (0): trains a copy for a few steps without any
/// exchange, notes when each gradient is ready on the slowest rank, measures all-reduces of these
/// ranks over the sizes of buckets, and takes the cut that is predicted to expose least. The same
/// on all ranks. Nothing, and PyTorch's sizes, where buckets are not used or there is one rank;
/// nothing where nothing is `auto`. Throws Error kUsage for ranks on GPUs, which are not measured
/// this way. Collective.
std::optional<BucketChoice> settle_buckets(Exchange& exchange, const DataSource& data,
                                           const ComputeSettings& compute, TrainOptions& options);

/// The line about the choice that rank 0 prints.
std::string bucket_text(const BucketChoice& choice);

}  // namespace gradsync
