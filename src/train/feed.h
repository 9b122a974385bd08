#pragma once

#include <memory>
#include <optional>

#include "data/sampler.h"
#include "options/epoch_plan.h"
#include "options/options.h"
#include "sync/sync_mode.h"
#include "train/batch_source.h"

namespace gradsync {

/// The images that a rank loads.
enum class FeedShare {
  kOwn,       ///< its own slice
  kAllRanks,  ///< every rank's slice, in order of rank: a root that scatters
  kNone,      ///< nothing: receives from the root
};
FeedShare feed_share(SyncMode& mode, int rank);

/// The training images of one rank, pass by pass, over epochs. An iteration takes
/// `accumulate` passes, see EpochPlan.
class Feed {
 public:
  Feed(const DataSource& data, const TrainOptions& options, Layout layout, int rank, int ranks,
       FeedShare share);

  /// Iterations of an epoch, equal on all ranks; with --batch-schedule epochs differ.
  std::int64_t iterations_of(std::int64_t epoch) const { return plan_of(epoch).iterations(); }
  /// Passes of the iteration `step` of the epoch that is being fed: the last may have fewer.
  std::int64_t passes_of(std::int64_t step) const { return plan_.passes_of(step); }
  /// The pass with which the iteration `step` begins.
  std::int64_t first_pass_of(std::int64_t step) const { return step * plan_.accumulate; }

  /// Starts an epoch at its iteration `first`, and its prefetching. The order depends on `epoch`
  /// unless --no-set-epoch.
  void begin_epoch(std::int64_t epoch, std::int64_t first = 0);

  /// The next pass; blocks until it is loaded. Give it back with `recycle`.
  FeedBatch next() {
    ++made_;
    return source_->next();
  }
  void recycle(FeedBatch batch) { source_->recycle(std::move(batch)); }

  /// Batches of this epoch so far.
  std::int64_t made() const { return made_; }
  /// See BatchSource.
  void skip(std::int64_t batches) {
    made_ += batches;
    source_->skip(batches);
  }

  /// See BatchSource.
  const void* place() const { return source_->place(); }

  /// Images per rank of pass `pass` of the epoch, from any source.
  std::int64_t samples_per_rank(std::int64_t pass) const { return sampler_.batch_size(pass); }

  /// The order of an epoch, whichever one is being fed.
  Sampler order_of(std::int64_t epoch) const;

  std::string order_digest() const { return sampler_.order_digest(); }

 private:
  std::vector<std::int64_t> indices(std::int64_t pass) const;
  EpochPlan plan_of(std::int64_t epoch) const;
  std::int64_t longest_epoch() const;
  Sampler sampler_for(std::int64_t epoch) const;

  std::int64_t images_;  ///< of the training set
  const TrainOptions& options_;
  Layout layout_;
  int rank_, ranks_;
  FeedShare share_;
  Sampler sampler_;
  EpochPlan plan_;
  std::int64_t made_ = 0;
  std::unique_ptr<BatchSource> source_;  // last: its threads read all of the above
};

}  // namespace gradsync
