#include <cmath>

#include <doctest/doctest.h>

#include "data/synthetic.h"
#include "model/network.h"
#include "mpi/ranks.h"
#include "mpi/short_training.h"
#include "optim/optimizer.h"
#include "options/fault.h"
#include "options/options.h"
#include "step/feed.h"
#include "step/gather_rows.h"
#include "step/gradient_guard.h"
#include "sync/sync_mode.h"
#include "train/run_texts.h"

using namespace gradsync;
using gradsync::test::Ranks;

TEST_CASE("networks have the parameters that the literature counts" * test::once()) {
  const auto count = [](const char* name) {
    return make_replica(name, 1, Layout::kNchw).parameter_count();
  };
  CHECK(count("vgg11") == 9231114);
  CHECK(count("resnet18") == 11173962);
  CHECK(count("resnet18-imagenet") == 11689512);
  CHECK(count("lenet") == 61780);
  CHECK(count("lenet-no-bias") == 61770);
}

TEST_CASE("one seed gives one network on every rank, another seed another, whatever the layout") {
  const std::string mine = parameter_hash(make_replica("lenet", 5, Layout::kNhwc));
  CHECK(mine == parameter_hash(make_replica("lenet", 5, Layout::kNchw)));
  CHECK(mine != parameter_hash(make_replica("lenet", 6, Layout::kNhwc)));
  std::string first = mine;
  MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_CHAR, 0, test::session().world());
  CHECK(mine == first);
}

TEST_CASE("NaN and infinity are found anywhere, and nothing else is" * test::once()) {
  std::vector<float> values(1003, 1e30f);
  CHECK(all_finite(values));
  for (const float bad : {std::nanf(""), -std::nanf(""), INFINITY, -INFINITY})
    for (const std::size_t at : {std::size_t{0}, std::size_t{501}, std::size_t{1002}}) {
      auto copy = values;
      copy[at] = bad;
      CHECK(!all_finite(copy));
    }
  CHECK(all_finite({}));
}

TEST_CASE("the guard names the tensor" * test::once()) {
  Ranks ranks;
  Replica replica = make_replica("lenet", 2, Layout::kNhwc);
  GradientGuard guard(replica, ranks.exchange);
  const torch::Tensor images = torch::randn({2, 3, 32, 32});
  replica.network->forward(images).sum().backward();
  CHECK(guard.first_bad() == -1);
  guard.poison_next();
  replica.network->forward(images).sum().backward();
  REQUIRE(guard.first_bad() >= 0);
  // Autograd completes the last layer first: its bias or its weight.
  CHECK(replica.names[static_cast<std::size_t>(guard.first_bad())].rfind("fc3.", 0) == 0);
  guard.reset();
  CHECK(guard.first_bad() == -1);
}

TEST_CASE("rows of all ranks arrive on rank 0") {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  StepResult mine;
  mine.samples = 8;
  mine.measured.loss = 1.0 + ranks.rank;
  mine.measured[Phase::kIteration] = 0.5;
  mine.buckets = {{4, CollectiveKind::kAllReduce}};
  mine.measured[Phase::kWait] = 0.01 * ranks.rank;
  mine.measured.buckets = {{0.1, 0.2, 0.3, 0.25 + 0.001 * ranks.rank}};
  IterationRow row;
  const Verdict verdict = gather_rows(ranks.exchange, mine, 0.25, row);
  CHECK(verdict.bad_rank == -1);
  if (ranks.rank != 0) return;
  REQUIRE(row.ranks.size() == static_cast<std::size_t>(ranks.size));
  CHECK(row.samples == 8 * ranks.size);
  CHECK(row.buckets.size() == 1);
  for (int r = 0; r < ranks.size; ++r) {
    const RankIteration& rank = row.ranks[static_cast<std::size_t>(r)];
    CHECK(rank.loss == 1.0 + r);
    CHECK(rank.begin_s == 0.25);
    CHECK(rank[Phase::kWait] == 0.01 * r);
    REQUIRE(rank.buckets.size() == 1);
    CHECK(rank.buckets[0].ready_s == 0.1);
    CHECK(rank.buckets[0].start_s == 0.2);
    CHECK(rank.buckets[0].end_s == 0.3);
    CHECK(rank.buckets[0].arrival_s == 0.25 + 0.001 * r);
    CHECK(std::isnan(rank[Phase::kBackward]));
  }
}

TEST_CASE("a bad gradient or loss of any rank is every rank's verdict") {
  Ranks ranks;
  const int last = ranks.size - 1;
  StepResult mine;
  mine.measured.loss = 1;
  mine.bad_tensor = ranks.rank == last ? 3 : -1;
  IterationRow row;
  Verdict verdict = gather_rows(ranks.exchange, mine, 0, row);
  CHECK(verdict.bad_rank == last);
  CHECK(verdict.bad_tensor == 3);
  mine.bad_tensor = -1;
  mine.measured.loss = ranks.rank == last ? std::nan("") : 1;
  verdict = gather_rows(ranks.exchange, mine, 0, row);
  CHECK(verdict.bad_rank == last);
  CHECK(verdict.bad_tensor == -1);
}

TEST_CASE("one rank that requests a stop is enough, and the lowest is named") {
  Ranks ranks;
  const int last = ranks.size - 1;
  StepResult mine;
  mine.measured.loss = 1;
  mine.stop = ranks.rank == last ? StopReason::kUsr1 : StopReason::kNone;
  IterationRow row;
  Verdict verdict = gather_rows(ranks.exchange, mine, 0, row);
  CHECK(verdict.bad_rank == -1);
  CHECK(verdict.stop == StopReason::kUsr1);
  CHECK(verdict.stop_rank == last);
  verdict = agree_on_stop(ranks.exchange,
                          ranks.rank == last ? StopReason::kTimeLimit : StopReason::kTerm);
  CHECK(verdict.stop == (last == 0 ? StopReason::kTimeLimit : StopReason::kTerm));
  CHECK(verdict.stop_rank == 0);
  CHECK(agree_on_stop(ranks.exchange, StopReason::kNone).stop_rank == -1);
}

TEST_CASE("faults for tests are read strictly" * test::once()) {
  const Fault fault = parse_fault("nan@1:5");
  CHECK(fault.due(1, 5));
  CHECK(!fault.due(0, 5));
  CHECK(!parse_fault("").due(0, 0));
  for (const char* text : {"nan", "nan@1", "nan@x:1", "nan@1:-2", "boom@1:1", "nan@1:5x"})
    CHECK_THROWS_AS(parse_fault(text), Error);
}

using namespace gradsync::test;

namespace {

double largest_of(const torch::Tensor& values) {
  return values.abs().max().item<double>();
}

}  // namespace

TEST_CASE("passes of unequal size make the gradient of their global batch") {
  SmallSet set;
  Ranks ranks;
  const DataSource data{*set.data, nullptr, torch::kCPU};
  const std::int64_t own = 400 / ranks.size;
  for (const char* mode : {"none", "allreduce", "ddp", "data-parallel"}) {
    CAPTURE(mode);
    TrainOptions options = short_options(mode);
    options.augment = false;
    options.batch_per_rank = own;
    const Trained whole = train_shortly(ranks.exchange, data, options, 9);
    // Passes of 2/5, 2/5 and 1/5 of the images.
    options.batch_per_rank = own * 2 / 5;
    options.accumulate = 3;
    const Trained parts = train_shortly(ranks.exchange, data, options, 9);
    REQUIRE(whole.steps.size() == 1);
    REQUIRE(parts.steps.size() == 1);
    CHECK(parts.steps[0].samples == own);
    CHECK(parts.steps[0].measured.loss == doctest::Approx(whole.steps[0].measured.loss));
    const auto start = flat_parameters(make_replica(options.model, options.seed, Layout::kNhwc));
    const double step = largest_of(whole.parameters - start);
    CHECK(step > 1e-4);
    CHECK(largest_of(parts.parameters - whole.parameters) < 1e-3 * step);
  }
}

TEST_CASE("the last iteration takes the passes that are left") {
  SmallSet set;
  Ranks ranks;
  const DataSource data{*set.data, nullptr, torch::kCPU};
  TrainOptions options = short_options("ddp");
  options.batch_per_rank = 400 / ranks.size / 5;
  options.accumulate = 3;
  const auto samples = [&] {
    std::vector<std::int64_t> all;
    for (const StepResult& step : train_shortly(ranks.exchange, data, options, 9).steps)
      all.push_back(step.samples * ranks.size);
    return all;
  };
  CHECK(samples() == std::vector<std::int64_t>{240, 160});
  options.last_batch = "drop";
  CHECK(samples() == std::vector<std::int64_t>{240});
}

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

TEST_CASE("a resident feed's order keeps its place after a resume within an epoch") {
  SmallSet set;
  TrainOptions options = options_of("pad");
  options.epochs = 3;
  const DataSource on_device(
      *set.data, std::make_shared<ResidentData>(*set.data, torch::kCPU, ImageType::kFloat32));
  for (const FeedShare share : {FeedShare::kOwn, FeedShare::kAllRanks}) {
    Feed resident(on_device, options, Layout::kNhwc, test::session().rank(), test::session().size(),
                  share);
    resident.begin_epoch(0, /*first=*/resident.iterations_of(0) - 1);
    const void* place = resident.place();
    for (const std::int64_t epoch : {1, 2}) {
      resident.begin_epoch(epoch);
      CHECK(resident.place() == place);
    }
  }
}

TEST_CASE("precision and layout are timed with the run's batch on a GPU" * test::once()) {
  TrainOptions options;
  options.batch_per_rank = 512;
  const ProbePlan cpu = probe_plan(options, torch::kCPU), gpu = probe_plan(options, torch::kCUDA);
  CHECK(cpu.batch == 32);
  CHECK(gpu.batch == 512);
  CHECK(gpu.steps > cpu.steps);
  CHECK(gpu.warmup > cpu.warmup);
  options.batch_per_rank = 8;
  CHECK(probe_plan(options, torch::kCPU).batch == 8);
}
