#include <doctest/doctest.h>

#include "data/synthetic.h"
#include "mpi/ranks.h"
#include "step/feed.h"

using namespace gradsync;

namespace {

constexpr std::int64_t kImages = 250, kEpochs = 3;

TrainOptions options_of(const std::string& last_batch) {
  TrainOptions options;
  options.batch_per_rank = 16;
  options.seed = 11;
  options.loader_threads = 1;
  options.last_batch = last_batch;
  return options;
}

/// One epoch of both, batch by batch.
void check_equal(Feed& loaded, Feed& resident, torch::ScalarType type, std::int64_t passes) {
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    FeedBatch expected = loaded.next(), got = resident.next();
    CHECK(got.samples() == expected.samples());
    CHECK((got.images.scalar_type() == type));
    CHECK(got.images.strides() == expected.images.strides());
    CHECK(torch::equal(got.images, expected.images.to(type)));
    CHECK(torch::equal(got.labels, expected.labels));
    loaded.recycle(std::move(expected));
    resident.recycle(std::move(got));
  }
}

void check_feeds(const Cifar10& data, ImageType type, Layout layout, const std::string& last_batch,
                 FeedShare share) {
  const TrainOptions options = options_of(last_batch);
  const int rank = test::session().rank(), ranks = test::session().size();
  const DataSource on_device(data, std::make_shared<ResidentData>(data, torch::kCPU, type));
  Feed loaded(data, options, layout, rank, ranks, share);
  Feed resident(on_device, options, layout, rank, ranks, share);
  const torch::ScalarType expected = share == FeedShare::kOwn ? scalar_type(type) : torch::kFloat32;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::int64_t first = epoch == 1 ? 1 : 0;  // an epoch that is gone on with
    loaded.begin_epoch(epoch, first);
    resident.begin_epoch(epoch, first);
    check_equal(loaded, resident, expected, loaded.iterations_of(epoch) - first);
    CHECK_THROWS(resident.next());
  }
}

}  // namespace

TEST_CASE("a resident feed gives the loader's batches on every rank, epoch by epoch") {
  test::SharedFolder folder;
  if (test::session().root()) synthesize(folder.path() / "set", 3, kImages, 10);
  MPI_Barrier(test::session().world());
  const Cifar10 data(folder.path() / "set");
  check_feeds(data, ImageType::kFloat32, Layout::kNhwc, "pad", FeedShare::kOwn);
  check_feeds(data, ImageType::kBfloat16, Layout::kNhwc, "drop", FeedShare::kOwn);
  check_feeds(data, ImageType::kFloat16, Layout::kNchw, "pad", FeedShare::kOwn);
  // What a root scatters travels as float32.
  check_feeds(data, ImageType::kBfloat16, Layout::kNhwc, "pad", FeedShare::kAllRanks);
  check_feeds(data, ImageType::kBfloat16, Layout::kNhwc, "pad", FeedShare::kNone);
}
