#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

#include "data/loader.h"
#include "data/synthetic.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSteps = 40, kBatch = 5;

struct LoaderFixture {
  LoaderFixture() { synthesize(folder / "data", 1, kSteps * kBatch, 10); }

  TestFolder folder;
  const Cifar10& data() {
    if (!opened) opened.emplace(folder / "data");
    return *opened;
  }
  std::optional<Cifar10> opened;
};

std::vector<std::int64_t> images_of(std::int64_t step) {
  std::vector<std::int64_t> images;
  for (std::int64_t i = 0; i < kBatch; ++i)
    images.push_back((step * 37 + i * 11) % 200);
  return images;
}

LoaderOptions options_with(std::int64_t threads, std::int64_t prefetch = 3) {
  LoaderOptions options;
  options.steps = kSteps;
  options.epoch = 4;
  options.seed = 8;
  options.augment = true;
  options.threads = threads;
  options.prefetch = prefetch;
  return options;
}

/// The batch of a step, made with the parts alone.
Batch batch_by_hand(const Cifar10& data, std::int64_t step) {
  Batch batch;
  const ImageTransform transform(Layout::kNchw);
  for (const std::int64_t image : images_of(step)) {
    std::vector<float> out(kImageBytes);
    transform.apply(data.pixels(Split::kTrain, image), out, random_placement(8, 4, image));
    batch.images.insert(batch.images.end(), out.begin(), out.end());
    batch.labels.push_back(data.label(Split::kTrain, image));
  }
  return batch;
}

TEST_CASE_FIXTURE(LoaderFixture, "batches are the same, in order, for every number of threads") {
  for (const std::int64_t threads : {0, 1, 2, 7}) {
    for (const std::int64_t prefetch : {1, 3, 100}) {
      CAPTURE(threads);
      Loader loader(data(), images_of, options_with(threads, prefetch));
      for (std::int64_t step = 0; step < kSteps; ++step) {
        Batch batch = loader.next();
        const Batch expected = batch_by_hand(data(), step);
        REQUIRE(batch.size == kBatch);
        REQUIRE(batch.labels == expected.labels);
        REQUIRE(batch.images == expected.images);
        loader.recycle(std::move(batch));
      }
      CHECK(loader.finished());
      error_text(ExitCode::kInternal, [&] { loader.next(); });
    }
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "without augmentation the image stays where it is") {
  LoaderOptions options = options_with(1);
  options.augment = false;
  options.layout = Layout::kNhwc;
  Loader loader(data(), images_of, options);
  const Batch batch = loader.next();
  std::vector<float> first(kImageBytes);
  ImageTransform(Layout::kNhwc).apply(data().pixels(Split::kTrain, images_of(0)[0]), first);
  CHECK(std::vector<float>(batch.images.begin(), batch.images.begin() + kImageBytes) == first);
}

TEST_CASE_FIXTURE(LoaderFixture, "recycled memory is used again") {
  for (const std::int64_t threads : {0, 2}) {
    Loader loader(data(), images_of, options_with(threads, 2));
    std::set<const float*> places;
    while (!loader.finished()) {
      Batch batch = loader.next();
      places.insert(batch.images.data());
      loader.recycle(std::move(batch));
    }
    // Two slots, one batch in the caller's hands, one being claimed.
    CHECK(places.size() <= 4);
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "no more than `prefetch` batches are made ahead") {
  std::atomic<std::int64_t> asked = 0;
  const auto counted = [&](std::int64_t step) {
    ++asked;
    return images_of(step);
  };
  Loader loader(data(), counted, options_with(2, 3));
  std::this_thread::sleep_for(50ms);
  CHECK(asked == 3);
  loader.next();
  std::this_thread::sleep_for(50ms);
  CHECK(asked == 4);
}

TEST_CASE_FIXTURE(LoaderFixture, "an error comes out at its own step and the others continue") {
  const auto failing = [](std::int64_t step) {
    if (step == 2) throw std::runtime_error("step 2");
    return step == 4 ? std::vector<std::int64_t>{1'000'000} : images_of(step);
  };
  for (const std::int64_t threads : {0, 3}) {
    Loader loader(data(), failing, options_with(threads));
    loader.next();
    loader.next();
    CHECK_THROWS_WITH(loader.next(), "step 2");
    CHECK(loader.next().labels == batch_by_hand(data(), 3).labels);
    CHECK(contains(error_text(ExitCode::kInternal, [&] { loader.next(); }), "1000000"));
    CHECK(loader.next().labels == batch_by_hand(data(), 5).labels);
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "a loader can be dropped at any moment, at once") {
  const auto begin = std::chrono::steady_clock::now();
  for (int taken = 0; taken < 40; ++taken) {
    Loader loader(data(), images_of, options_with(4, 1 + taken % 5));
    for (int step = 0; step < taken; ++step)
      loader.next();
  }
  const auto large = [](std::int64_t) { return std::vector<std::int64_t>(200'000, 0); };
  { const Loader loader(data(), large, options_with(2)); }
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
}

TEST_CASE_FIXTURE(LoaderFixture, "an epoch without steps, and settings out of range") {
  LoaderOptions options = options_with(2);
  options.steps = 0;
  CHECK(Loader(data(), images_of, options).finished());
  error_text(ExitCode::kUsage, [&] { Loader(data(), images_of, options_with(-1)); });
  error_text(ExitCode::kUsage, [&] { Loader(data(), images_of, options_with(1, 0)); });
}

}  // namespace
}  // namespace gradsync
