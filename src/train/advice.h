// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "options/options.h"
#include "record/row_figures.h"
#include "train/batch_source.h"
#include "train/compute_settings.h"

namespace gradsync {

/// A gain below which no setting is tried.
inline constexpr double kLeastGain = 0.01;

/// A setting that would shorten an iteration, as the model says.
struct Advice {
  std::string contender;  ///< as --compare takes it: "ddp:bucket-cap=4MiB:wire-dtype=bf16"
  /// Predicted iteration over that of the fastest contender, with the range that allows for the
  /// error of the model.
  double ratio = kNotMeasured, low = kNotMeasured, high = kNotMeasured;
  std::string against = {};  ///< the fastest contender
};

/// What a prediction rests on; the same on all ranks.
struct AdviceBasis {
  const TrainOptions& fastest;  ///< the fastest contender that exchanges gradients, settled
  BlockTime medians;            ///< of it, as measured so far
  const TrainOptions& plain;    ///< of `ddp` with no setting of its own, settled
};

using MakeExchange = std::function<Exchange&(const std::string& transport)>;
/// Trains so for some iterations, unrecorded, and returns their medians.
using TryBriefly = std::function<BlockTime(Exchange& exchange, const TrainOptions& options)>;

/// Predicts ddp with other buckets and data types in transit, over the transport of the fastest
/// contender and that of `plain`, and the best of them with half as many updates: measures when the
/// gradients are ready and what an all-reduce takes over each transport (`over`), and replays the
/// buckets on one channel (advice_of). What an iteration exposes is replaced, all else stays.
/// All-reduces are slowed down as far as the replay then exposes what was measured of training over
/// this transport: of the fastest contender if it is replayed, else of a brief trial.
/// Cross-iteration overlap is no part of it: its gain depends on the length of blocks. Returns all
/// settings by rising ratio, the one with fewer updates behind the best; the same on all ranks,
/// which are on CPUs. Collective.
std::vector<Advice> advise(const AdviceBasis& basis, const DataSource& data,
                           const ComputeSettings& compute, const MakeExchange& over,
                           const TryBriefly& tried);

}  // namespace gradsync
