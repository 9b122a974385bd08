#pragma once

#include <cstdint>
#include <set>

#include "data/sampler.h"

namespace gradsync {

/// What an epoch's order of the images brings to training.
struct EpochOrder {
  std::int64_t new_batches = 0;    ///< global batches, as sets of images, that no epoch had before
  std::int64_t shared_images = 0;  ///< images that more than one rank took, repeats of kPad apart
};

/// Counts over the epochs of a run which global batches were new. With a new order every epoch
/// nearly all are; without --set-epoch none after the first epoch.
class BatchCensus {
 public:
  /// Adds the first `steps` steps of `passes` passes of the sampler's epoch.
  EpochOrder add(const Sampler& sampler, std::int64_t ranks, std::int64_t passes,
                 std::int64_t steps);

 private:
  std::set<std::uint64_t> seen_;
};

}  // namespace gradsync
