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
  /// Predicted iteration over that of the fastest contender; the ends are without, and with, what
  /// all-reduces take longer beside training than alone.
  double ratio = kNotMeasured, low = kNotMeasured, high = kNotMeasured;
  std::string against = {};  ///< the fastest contender
};

/// What a prediction rests on; the same on all ranks.
struct AdviceBasis {
  const TrainOptions& fastest;  ///< the fastest contender that exchanges gradients, settled
  BlockTime medians;            ///< of it, as measured so far
  const TrainOptions& plain;    ///< of `ddp` with no setting of its own, settled
};

/// Predicts ddp with other buckets, data types in transit, cross-iteration overlap and transports,
/// and the best of them with half as many updates:
/// measures when the gradients are ready and what an all-reduce takes over each transport
/// (`over`), and replays the buckets on one channel (advice_of). What an iteration exposes is
/// replaced, all else stays. All-reduces are slowed down as far as the replay of the fastest
/// contender then exposes what was measured of it. Returns all settings by rising ratio, the one
/// with fewer updates behind the best; the same on all ranks, which are on CPUs. Collective.
std::vector<Advice> advise(const AdviceBasis& basis, const DataSource& data,
                           const ComputeSettings& compute,
                           const std::vector<std::string>& transports,
                           const std::function<Exchange&(const std::string& transport)>& over);

}  // namespace gradsync
