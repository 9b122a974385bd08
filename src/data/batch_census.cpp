#include "data/batch_census.h"

#include <algorithm>
#include <map>
#include <vector>

namespace gradsync {

namespace {

/// 64 bits that do not depend on the order of the images: a sum of their splitmix64 values.
std::uint64_t digest_of(std::int64_t image) {
  std::uint64_t state = static_cast<std::uint64_t>(image) + 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

}  // namespace

EpochOrder BatchCensus::add(const Sampler& sampler, std::int64_t ranks, std::int64_t passes,
                            std::int64_t steps) {
  EpochOrder order;
  std::map<std::int64_t, std::int64_t> owners;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::uint64_t batch = 0;
    const std::int64_t end = std::min((step + 1) * passes, sampler.steps());
    for (std::int64_t pass = step * passes; pass < end; ++pass)
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto images = sampler.batch_of(pass, rank);
        const std::int64_t own = sampler.unrepeated(pass, rank);
        for (std::size_t i = 0; i < images.size(); ++i) {
          batch += digest_of(images[i]);
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
