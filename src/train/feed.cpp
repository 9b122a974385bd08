#include "train/feed.h"

namespace gradsync {

Feed::Feed(const Cifar10& data, const TrainOptions& options, Layout layout, int rank, int ranks,
           FeedShare share)
    : data_(data),
      options_(options),
      layout_(layout),
      rank_(rank),
      ranks_(ranks),
      share_(share),
      sampler_(sampler_for(0)) {}

std::int64_t Feed::batch_per_rank(std::int64_t epoch) const {
  if (options_.batch_schedule.empty()) return options_.batch_per_rank;
  return options_.batch_schedule.at(epoch) / (ranks_ * options_.accumulate);
}

Sampler Feed::sampler_for(std::int64_t epoch) const {
  return Sampler(data_.size(Split::kTrain), rank_, ranks_, batch_per_rank(epoch), options_.seed,
                 last_batch());
}

LastBatch Feed::last_batch() const {
  return options_.last_batch == "drop" ? LastBatch::kDrop : LastBatch::kPad;
}

std::int64_t Feed::iterations_of(std::int64_t epoch) const {
  return steps_of_epoch(data_.size(Split::kTrain), ranks_, batch_per_rank(epoch), last_batch()) /
         options_.accumulate;
}

void Feed::begin_epoch(std::int64_t epoch, std::int64_t first) {
  loader_.reset();
  if (!options_.batch_schedule.empty()) sampler_ = sampler_for(epoch);
  sampler_.set_epoch(options_.set_epoch ? epoch : 0);
  LoaderOptions how;
  const std::int64_t skipped = first * options_.accumulate;
  how.steps = iterations_of(epoch) * options_.accumulate - skipped;
  how.epoch = epoch;
  how.seed = options_.seed;
  how.augment = options_.augment;
  how.layout = layout_;
  how.threads = static_cast<int>(options_.loader_threads);
  how.prefetch = static_cast<int>(options_.prefetch);
  loader_ = std::make_unique<Loader>(
      data_, [this, skipped](std::int64_t pass) { return indices(skipped + pass); }, how);
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
