// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "train/iteration.h"

namespace gradsync {

namespace {

/// Images that travel between ranks travel as float32.
ImageType image_type(const DataSource& data, FeedShare share) {
  return data.resident && share == FeedShare::kOwn ? data.resident->type() : ImageType::kFloat32;
}

}  // namespace

FeedShare feed_share(SyncMode& mode, int rank) {
  if (!mode.root_loss()) return FeedShare::kOwn;
  return rank == 0 ? FeedShare::kAllRanks : FeedShare::kNone;
}

Feed::Feed(const DataSource& data, const TrainOptions& options, Layout layout, int rank, int ranks,
           FeedShare share)
    : images_(data.size(Split::kTrain)),
      options_(options),
      layout_(layout),
      rank_(rank),
      ranks_(ranks),
      share_(share),
      sampler_(sampler_for(0)),
      plan_(plan_of(0)),
      source_(make_batch_source(data, image_type(data, share))) {}

EpochPlan Feed::plan_of(std::int64_t epoch) const {
  return epoch_plan(options_, images_, ranks_, epoch);
}

Sampler Feed::sampler_for(std::int64_t epoch) const {
  return Sampler(images_, rank_, ranks_, batch_per_rank_in(options_, epoch, ranks_), options_.seed,
                 options_.last_batch);
}

Sampler Feed::order_of(std::int64_t epoch) const {
  Sampler sampler = sampler_for(epoch);
  sampler.set_epoch(options_.set_epoch ? epoch : 0);
  return sampler;
}

void Feed::begin_epoch(std::int64_t epoch, std::int64_t first) {
  source_->stop();
  made_ = 0;
  if (!options_.batch_schedule.empty()) sampler_ = sampler_for(epoch);
  sampler_.set_epoch(options_.set_epoch ? epoch : 0);
  plan_ = plan_of(epoch);
  LoaderOptions how;
  const std::int64_t skipped = first_pass_of(first);
  how.steps = plan_.passes_from(first);
  how.epoch = epoch;
  how.seed = options_.seed;
  how.augment = options_.augment;
  how.layout = layout_;
  how.threads = static_cast<int>(options_.loader_threads);
  how.prefetch = static_cast<int>(options_.prefetch);
  how.longest = longest_epoch();
  how.slowdown = options_.inject_fault.slowdown(FaultKind::kSlowLoader, rank_);
  source_->begin([this, skipped](std::int64_t pass) { return indices(skipped + pass); }, how);
}

/// The longest epoch in images of this rank: one that is resumed has fewer than the ones after it.
std::int64_t Feed::longest_epoch() const {
  const std::int64_t shares = share_ == FeedShare::kAllRanks ? ranks_ : 1;
  std::int64_t longest = 0;
  for (std::int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    const EpochPlan plan = plan_of(epoch);
    // A batch may be larger than what there is.
    const std::int64_t batch =
        std::min(batch_per_rank_in(options_, epoch, ranks_), (images_ + ranks_ - 1) / ranks_);
    longest = std::max(longest, plan.passes * batch * shares);
  }
  return longest;
}

std::vector<std::int64_t> Feed::indices(std::int64_t pass) const {
  if (share_ == FeedShare::kNone) return {};
  if (share_ == FeedShare::kOwn) return sampler_.batch(pass);
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto one = sampler_.batch_of(pass, rank);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace gradsync
