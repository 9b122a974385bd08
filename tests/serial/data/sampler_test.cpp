// SPDX-License-Identifier: BSD-3-Clause
#include "data/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>

#include <doctest/doctest.h>

#include "serial/expect_error.h"
#include "stats/random.h"

namespace gradsync {
namespace {

using Images = std::vector<std::int64_t>;

struct Shape {
  std::int64_t size, ranks, batch;
};

const std::vector<Shape> kShapes = {{1, 1, 1},   {10, 3, 2}, {12, 4, 3}, {17, 4, 5},
                                    {100, 7, 8}, {7, 7, 1},  {50, 1, 64}};

Sampler sampler_of(const Shape& shape, LastBatch last, std::uint64_t seed = 5,
                   std::int64_t rank = 0) {
  return Sampler(shape.size, rank, shape.ranks, shape.batch, seed, last);
}

/// The whole order of an epoch, seen through one rank with a batch of one.
Images whole_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  Sampler one(size, 0, 1, 1, seed);
  one.set_epoch(epoch);
  Images order;
  for (std::int64_t step = 0; step < one.steps(); ++step)
    order.push_back(one.batch(step).at(0));
  return order;
}

/// PyTorch's rule, said with lists: lengthen or cut, take every ranks-th, chop into batches.
std::vector<Images> batches_by_the_rule(Images order, const Shape& shape, std::int64_t rank,
                                        LastBatch last) {
  const Images original = order;
  while (last == LastBatch::kPad && order.size() % static_cast<std::size_t>(shape.ranks) != 0) {
    order.push_back(original[order.size() - original.size()]);
  }
  while (order.size() % static_cast<std::size_t>(shape.ranks) != 0)
    order.pop_back();
  Images mine;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (static_cast<std::int64_t>(i) % shape.ranks == rank) mine.push_back(order[i]);
  }
  std::vector<Images> batches;
  for (const std::int64_t image : mine) {
    if (batches.empty() || static_cast<std::int64_t>(batches.back().size()) == shape.batch) {
      batches.emplace_back();
    }
    batches.back().push_back(image);
  }
  const bool incomplete = static_cast<std::int64_t>(batches.back().size()) < shape.batch;
  if (last == LastBatch::kDrop && incomplete) batches.pop_back();
  return batches;
}

void check_against_rule(const Shape& shape, LastBatch last) {
  CAPTURE(shape.size);
  CAPTURE(shape.ranks);
  CAPTURE(shape.batch);
  const Images order = whole_order(shape.size, 5, 3);
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const std::vector<Images> expected = batches_by_the_rule(order, shape, rank, last);
    if (expected.empty()) continue;
    Sampler sampler = sampler_of(shape, last, 5, rank);
    sampler.set_epoch(3);
    REQUIRE(sampler.steps() == static_cast<std::int64_t>(expected.size()));
    for (std::int64_t step = 0; step < sampler.steps(); ++step) {
      const Images& batch = expected[static_cast<std::size_t>(step)];
      CHECK(sampler.batch(step) == batch);
      CHECK(sampler.batch_of(step, rank) == batch);
      CHECK(sampler.batch_size(step) == static_cast<std::int64_t>(batch.size()));
    }
  }
}

TEST_CASE("each rank's batches follow DistributedSampler's rule") {
  for (const Shape& shape : kShapes) {
    check_against_rule(shape, LastBatch::kPad);
    if (shape.size / shape.ranks >= shape.batch) check_against_rule(shape, LastBatch::kDrop);
  }
}

TEST_CASE("an epoch's order holds every image once") {
  Images order = whole_order(1000, 1, 0);
  std::ranges::sort(order);
  for (std::int64_t i = 0; i < 1000; ++i)
    CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("the order depends on seed and epoch and on nothing else") {
  const Images order = whole_order(1000, 1, 0);
  CHECK(order == whole_order(1000, 1, 0));
  CHECK(order != whole_order(1000, 2, 0));
  CHECK(order != whole_order(1000, 1, 1));
  Sampler unmoved(1000, 0, 1, 1, 1);
  CHECK(unmoved.epoch() == 0);
}

TEST_CASE("a fixed global batch holds the same images for every number of ranks") {
  for (const std::int64_t step : {0, 3, 6}) {
    std::set<Images> unions;
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      const Sampler sampler(1000, 0, ranks, 128 / ranks, 9);
      Images all;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const Images mine = sampler.batch_of(step, rank);
        all.insert(all.end(), mine.begin(), mine.end());
      }
      std::ranges::sort(all);
      unions.insert(all);
    }
    CHECK(unions.size() == 1);
    CHECK(unions.begin()->size() == 128);
  }
}

TEST_CASE("counting only what is not a repeat counts every image once") {
  for (const Shape& shape : kShapes) {
    const Sampler sampler(shape.size, 0, shape.ranks, shape.batch, 0, LastBatch::kPad, false);
    Images seen;
    for (std::int64_t step = 0; step < sampler.steps(); ++step) {
      for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
        const Images batch = sampler.batch_of(step, rank);
        seen.insert(seen.end(), batch.begin(), batch.begin() + sampler.unrepeated(step, rank));
      }
    }
    std::ranges::sort(seen);
    CHECK(std::ranges::adjacent_find(seen) == seen.end());
    CHECK(static_cast<std::int64_t>(seen.size()) == shape.size);
  }
}

TEST_CASE("without shuffling the order is that of the files") {
  const Sampler sampler(10, 1, 2, 3, 5, LastBatch::kPad, false);
  CHECK(sampler.batch(0) == Images{1, 3, 5});
  CHECK(sampler.batch(1) == Images{7, 9});
}

TEST_CASE("the order's digest is one for all ranks and rank counts, another for each epoch") {
  const std::string digest = Sampler(1000, 0, 1, 10, 5).order_digest();
  CHECK(digest.size() == 16);
  CHECK(Sampler(1000, 3, 7, 4, 5).order_digest() == digest);
  Sampler later(1000, 0, 1, 10, 5);
  later.set_epoch(1);
  CHECK(later.order_digest() != digest);
}

TEST_CASE("the first image is spread evenly over the images") {
  std::array<int, 10> counts{};
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    ++counts[static_cast<std::size_t>(Sampler(10, 0, 1, 1, seed).batch(0).at(0))];
  }
  // 1000 expected, standard deviation 30.
  for (const int count : counts)
    CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("impossible shapes are usage errors with their numbers") {
  const std::string ranks = error_text(ExitCode::kUsage, [] { Sampler(3, 0, 4, 1, 0); });
  CHECK(contains(ranks, "4 ranks for 3 images"));
  error_text(ExitCode::kUsage, [] { Sampler(10, 0, 1, 0, 0); });
  error_text(ExitCode::kUsage, [] { Sampler(0, 0, 1, 1, 0); });
  const std::string dropped =
      error_text(ExitCode::kUsage, [] { Sampler(100, 0, 4, 26, 0, LastBatch::kDrop); });
  CHECK(contains(dropped, "104 images"));
  error_text(ExitCode::kInternal, [] { Sampler(10, 0, 1, 4, 0).batch(3); });
}

TEST_CASE("splitmix64 gives the published sequence from 0") {
  // First outputs of Vigna's splitmix64.c with seed 0.
  CHECK(splitmix64(0) == 0xE220A8397B1DCDAF);
  CHECK(splitmix64(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4);
  CHECK(splitmix64(2 * 0x9E3779B97F4A7C15) == 0x06C45D188009454F);
}

TEST_CASE("below stays below and reaches both ends") {
  CHECK(below(0, 10) == 0);
  CHECK(below(~std::uint64_t{0}, 10) == 9);
  CHECK(below(~std::uint64_t{0}, 1) == 0);
}

TEST_CASE("every part of a key matters") {
  const std::set<std::uint64_t> values = {mix(0, 0, 0, 0), mix(1, 0, 0, 0), mix(0, 1, 0, 0),
                                          mix(0, 0, 1, 0), mix(0, 0, 0, 1), mix(1, 1, 0, 0)};
  CHECK(values.size() == 6);
}

}  // namespace
}  // namespace gradsync

using namespace gradsync;

TEST_CASE("batch census: a new order every epoch brings new batches, the same one none") {
  Sampler sampler(100, 0, 2, 5, 1);
  BatchCensus fresh, stale;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const EpochOrder first = stale.add(sampler, 2, 1, sampler.steps());
    CHECK(first.new_batches == (epoch == 0 ? 10 : 0));
    CHECK(first.shared_images == 0);
  }
  for (int epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    CHECK(fresh.add(sampler, 2, 1, sampler.steps()).new_batches == 10);
  }
}

TEST_CASE("batch census: a batch is the images of all ranks and passes, in any order") {
  // One step over all images: the same batch, however often it is shuffled or split.
  Sampler whole(40, 0, 1, 40, 1), split(40, 0, 4, 5, 1);
  BatchCensus census;
  CHECK(census.add(whole, 1, 1, 1).new_batches == 1);
  whole.set_epoch(1);
  CHECK(census.add(whole, 1, 1, 1).new_batches == 0);
  CHECK(census.add(split, 4, 2, 1).new_batches == 0);
}

TEST_CASE("batch census: repeats that fill the last batch are not shared images, real ones are") {
  // 10 images on 4 ranks: 2 of 12 places are repeats.
  Sampler sampler(10, 0, 4, 3, 1);
  BatchCensus census;
  CHECK(census.add(sampler, 4, 1, 1).shared_images == 0);
}

TEST_CASE("batch census: only the steps that were taken count") {
  const Sampler sampler(100, 0, 2, 5, 1);
  BatchCensus census;
  CHECK(census.add(sampler, 2, 1, 4).new_batches == 4);
  CHECK(census.add(sampler, 2, 1, 10).new_batches == 6);
}
