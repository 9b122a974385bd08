#include "data/batch_census.h"

#include <doctest/doctest.h>

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
