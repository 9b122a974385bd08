// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

/// The recorded collectives of one iteration, one after the other in the thread of the step, on
/// data of their sizes that is not the gradients': what an iteration exchanges, without its
/// overlap. For the windows of --counterfactual; no mode to train in.
class Replay : public SyncMode {
 public:
  /// `overlaps`: whether the mode communicated beside compute; `wire_dtype` how its all-reduces
  /// travel (fp32, bf16, fp16). The data lies on `device`.
  Replay(Exchange& exchange, std::vector<BucketShape> buckets, bool overlaps,
         const std::string& wire_dtype, const torch::Device& device = torch::kCPU);

  void attach(Replica& replica) override;
  /// The collectives alone, in their recorded order.
  void synchronize() override;

 private:
  void make_room(const torch::Device& device);
  void repeat(const BucketShape& bucket);
  void run(const Collective& call);
  Collective mean_of(std::int64_t bytes);
  std::span<float> first(std::int64_t bytes);

  Exchange& exchange_;
  std::vector<BucketShape> buckets_;
  ValueType wire_;
  std::optional<FlatGradients> gradients_;
  torch::Tensor data_, all_;  ///< `all_` on the root of gather and scatter
};

}  // namespace gradsync
