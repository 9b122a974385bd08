// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace gradsync {

enum class LastBatch {
  kPad,   ///< images are repeated until every rank has as many; the last batch may be smaller
  kDrop,  ///< images that do not fill a whole batch on every rank are left out of this epoch
};

/// Steps of an epoch, equal on all ranks: 0 if kDrop leaves none. Requires what a Sampler does.
std::int64_t steps_of_epoch(std::int64_t size, std::int64_t ranks, std::int64_t batch_per_rank,
                            LastBatch last_batch);

/// Which images each rank sees in which step of an epoch; the rule of
/// torch.utils.data.DistributedSampler followed by a batch of `batch_per_rank`.
///
/// One permutation of all images is drawn from (seed, epoch), the same on every rank and for every
/// number of ranks. kPad lengthens it to a multiple of `ranks` by repeating it from its start,
/// kDrop cuts it. Rank r takes the positions r, r + ranks, r + 2·ranks, … of it. So every rank
/// makes the same number of equally large steps, and with a fixed global batch (ranks ×
/// batch_per_rank) step k covers the same set of images whatever the number of ranks (but for
/// repeats in the last step).
class Sampler {
 public:
  /// Starts at epoch 0. Without `shuffle` the order is 0, 1, 2, … in every epoch.
  /// Throws Error kUsage if there are no images, more ranks than images, a batch below 1, or kDrop
  /// leaves no step.
  Sampler(std::int64_t size, std::int64_t rank, std::int64_t ranks, std::int64_t batch_per_rank,
          std::uint64_t seed, LastBatch last_batch = LastBatch::kPad, bool shuffle = true);

  /// Draws the order of this epoch. Without it every epoch repeats the order of epoch 0.
  void set_epoch(std::int64_t epoch);

  std::int64_t epoch() const { return epoch_; }
  /// Steps of an epoch, equal on all ranks.
  std::int64_t steps() const { return steps_; }
  /// Images of one rank in `step`, equal on all ranks.
  std::int64_t batch_size(std::int64_t step) const;
  /// Indices of this rank's images in `step` (0 … steps() − 1).
  std::vector<std::int64_t> batch(std::int64_t step) const { return batch_of(step, rank_); }
  std::vector<std::int64_t> batch_of(std::int64_t step, std::int64_t rank) const;
  /// How many of batch_of(step, rank), counted from its front, are not repeats made by kPad. A test
  /// accuracy that counts only these counts every image once.
  std::int64_t unrepeated(std::int64_t step, std::int64_t rank) const;
  /// 16 hex digits of the whole epoch's order before padding or cutting: the same on all ranks and
  /// for every number of ranks.
  std::string order_digest() const;

 private:
  std::int64_t size_, rank_, ranks_, batch_per_rank_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t images_per_rank_ = 0, steps_ = 0, epoch_ = 0;
  std::vector<std::int64_t> order_;
};

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
