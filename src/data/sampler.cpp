// SPDX-License-Identifier: BSD-3-Clause
#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/parse.h"
#include "stats/random.h"

namespace gradsync {
namespace {

void check_shape(std::int64_t size, std::int64_t rank, std::int64_t ranks, std::int64_t batch) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw Error(ExitCode::kInternal, fmt::format("sampler: rank {} of {}", rank, ranks));
  }
  if (batch < 1) {
    throw Error(ExitCode::kUsage, fmt::format("batch per rank is {}; it must be at least 1", batch),
                "--batch-per-rank 1 or more");
  }
  if (ranks > size) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("{} for {}", count_text(ranks, "rank"), count_text(size, "image")),
        fmt::format("start at most {}, or use a larger data set", count_text(size, "rank")));
  }
}

/// Fisher and Yates' shuffle, Durstenfeld's form.
void shuffle_order(std::vector<std::int64_t>& order, std::uint64_t seed, std::int64_t epoch) {
  for (std::size_t last = order.size() - 1; last > 0; --last) {
    const std::uint64_t random =
        mix(seed, stream::kShuffle, static_cast<std::uint64_t>(epoch), last);
    std::swap(order[last], order[below(random, last + 1)]);
  }
}

std::int64_t images_of_rank(std::int64_t size, std::int64_t ranks, LastBatch last_batch) {
  return last_batch == LastBatch::kPad ? (size + ranks - 1) / ranks : size / ranks;
}

}  // namespace

std::int64_t steps_of_epoch(std::int64_t size, std::int64_t ranks, std::int64_t batch_per_rank,
                            LastBatch last_batch) {
  const std::int64_t images = images_of_rank(size, ranks, last_batch);
  return last_batch == LastBatch::kPad ? (images + batch_per_rank - 1) / batch_per_rank
                                       : images / batch_per_rank;
}

Sampler::Sampler(std::int64_t size, std::int64_t rank, std::int64_t ranks,
                 std::int64_t batch_per_rank, std::uint64_t seed, LastBatch last_batch,
                 bool shuffle)
    : size_(size),
      rank_(rank),
      ranks_(ranks),
      batch_per_rank_(batch_per_rank),
      seed_(seed),
      shuffle_(shuffle) {
  check_shape(size, rank, ranks, batch_per_rank);
  images_per_rank_ = images_of_rank(size, ranks, last_batch);
  steps_ = steps_of_epoch(size, ranks, batch_per_rank, last_batch);
  if (steps_ == 0) {
    throw Error(ExitCode::kUsage,
                fmt::format("{} with a batch of {} each: one step needs {}; the "
                            "data set has {} and the incomplete step is dropped",
                            count_text(ranks, "rank"), batch_per_rank,
                            count_text(ranks * batch_per_rank, "image"), size),
                fmt::format("--batch-per-rank {} or less, or --last-batch pad", images_per_rank_));
  }
  order_.resize(static_cast<std::size_t>(size));
  set_epoch(0);
}

void Sampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  if (shuffle_) shuffle_order(order_, seed_, epoch);
}

std::int64_t Sampler::batch_size(std::int64_t step) const {
  if (step < 0 || step >= steps_) {
    throw Error(ExitCode::kInternal, fmt::format("sampler: step {} of {}", step, steps_));
  }
  return std::min(batch_per_rank_, images_per_rank_ - step * batch_per_rank_);
}

std::vector<std::int64_t> Sampler::batch_of(std::int64_t step, std::int64_t rank) const {
  std::vector<std::int64_t> images(static_cast<std::size_t>(batch_size(step)));
  std::int64_t position = step * batch_per_rank_ * ranks_ + rank;
  for (std::int64_t& image : images) {
    image = order_[static_cast<std::size_t>(position % size_)];
    position += ranks_;
  }
  return images;
}

std::int64_t Sampler::unrepeated(std::int64_t step, std::int64_t rank) const {
  const std::int64_t first = step * batch_per_rank_ * ranks_ + rank;
  const std::int64_t of_the_order = (size_ - first + ranks_ - 1) / ranks_;
  return std::clamp<std::int64_t>(of_the_order, 0, batch_size(step));
}

std::string Sampler::order_digest() const {
  Sha256 digest;
  for (const std::int64_t image : order_) {
    std::array<std::byte, 8> little_endian{};
    for (std::size_t i = 0; i < 8; ++i)
      little_endian[i] = static_cast<std::byte>(image >> (8 * i));
    digest.update(little_endian);
  }
  return digest.hex().substr(0, 16);
}

EpochOrder BatchCensus::add(const Sampler& sampler, std::int64_t ranks, std::int64_t passes,
                            std::int64_t steps) {
  EpochOrder order;
  std::map<std::int64_t, std::int64_t> owners;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::uint64_t batch = 0;  // a sum, so it does not depend on the order of the images
    const std::int64_t end = std::min((step + 1) * passes, sampler.steps());
    for (std::int64_t pass = step * passes; pass < end; ++pass)
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto images = sampler.batch_of(pass, rank);
        const std::int64_t own = sampler.unrepeated(pass, rank);
        for (std::size_t i = 0; i < images.size(); ++i) {
          batch += splitmix64(static_cast<std::uint64_t>(images[i]));
          if (static_cast<std::int64_t>(i) >= own) continue;
          const auto [owner, is_new] = owners.emplace(images[i], rank);
          if (!is_new && owner->second != rank) ++order.shared_images;
        }
      }
    order.new_batches += seen_.insert(batch).second ? 1 : 0;
  }
  return order;
}

}  // namespace gradsync
