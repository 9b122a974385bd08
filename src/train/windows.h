// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/table.h"
#include "exchange/exchange.h"
#include "model/replica.h"
#include "record/run.h"
#include "train/run_setting.h"

namespace gradsync {

/// What the windows of --counterfactual need of the training they follow.
struct TrainedState {
  const Replica& replica;            ///< its values are copied, nothing in it is changed
  std::vector<BucketShape> buckets;  ///< the collectives of the last iteration
  std::int64_t iterations = 0;       ///< that were trained
  /// Called on all ranks before each window: the chance to stop.
  std::function<void()> before_window = {};
};

/// Runs the windows: rounds of compute-only (mode none), communication-only (the recorded
/// collectives), serial (backward, then those), overlapped (the mode) and overlapped-unmeasured
/// (the mode without stamps and without gathering rows), each on a fresh copy of the replica, after
/// iterations to warm up. Every round begins with another kind. Left out where they mean nothing:
/// serial for modes without overlap, and both with communication where none takes place (mode none,
/// one rank). A window is cut to the iterations of an epoch. Collective; rows on rank 0.
std::vector<WindowRow> run_windows(Exchange& exchange, const RunSetting& setting,
                                   const TrainedState& trained);

/// What they say, for people.
Table windows_table(const std::vector<WindowRow>& rows);

/// The kinds that mean something for a mode.
std::vector<std::string_view> window_kinds(const std::string& mode, bool communicates);

}  // namespace gradsync
