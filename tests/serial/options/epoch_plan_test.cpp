// SPDX-License-Identifier: BSD-3-Clause
#include "options/epoch_plan.h"

#include <doctest/doctest.h>

#include "serial/expect_error.h"

using namespace gradsync;

namespace {

TrainOptions batches_of(std::int64_t batch_per_rank, std::int64_t accumulate,
                        LastBatch last_batch = LastBatch::kPad) {
  TrainOptions options;
  options.batch_per_rank = batch_per_rank;
  options.accumulate = accumulate;
  options.last_batch = last_batch;
  return options;
}

std::string refused_text(const TrainOptions& options, std::int64_t images, std::int64_t ranks) {
  return error_text(ExitCode::kUsage, [&] { require_iterations(options, images, ranks); });
}

}  // namespace

TEST_CASE("epoch plan: padding drops no pass, whatever the accumulation") {
  for (std::int64_t images = 1; images <= 40; ++images)
    for (std::int64_t batch = 1; batch <= 7; ++batch)
      for (std::int64_t accumulate = 1; accumulate <= 5; ++accumulate) {
        const EpochPlan plan = epoch_plan(batches_of(batch, accumulate), images, 1, 0);
        std::int64_t passes = 0;
        for (std::int64_t step = 0; step < plan.iterations(); ++step) {
          CHECK(plan.passes_from(step) == plan.passes - passes);
          passes += plan.passes_of(step);
          CHECK(plan.passes_of(step) > 0);
        }
        CHECK(passes == (images + batch - 1) / batch);
        CHECK(plan.passes_from(plan.iterations()) == 0);
      }
}

TEST_CASE("epoch plan: dropping leaves whole iterations alone") {
  const EpochPlan plan = epoch_plan(batches_of(10, 3, LastBatch::kDrop), 89, 1, 0);
  CHECK(plan.passes == 8);
  CHECK(plan.iterations() == 2);
  CHECK(plan.passes_of(1) == 3);
  CHECK(plan.passes_from(0) == 6);
  CHECK(plan.passes_from(1) == 3);
  CHECK(plan.passes_from(2) == 0);
}

TEST_CASE("epoch plan: epochs of a run are cut off by --iterations, passes have these sizes") {
  using Lengths = std::vector<std::int64_t>;
  using Sizes = std::set<std::int64_t>;
  TrainOptions options = batches_of(128, 2);
  options.epochs = 3;
  CHECK(epoch_lengths(options, 640, 1) == Lengths{3, 3, 3});
  CHECK(pass_sizes(options, 640, 1) == Sizes{128});
  CHECK(pass_sizes(options, 641, 1) == Sizes{128, 1});
  CHECK(pass_sizes(options, 641, 2) == Sizes{128, 65});
  CHECK(pass_sizes(options, 100, 1) == Sizes{100});
  options.iterations = 4;
  CHECK(epoch_lengths(options, 640, 1) == Lengths{3, 1, 0});
  CHECK(iterations_beyond_epochs(options, 640, 1) == "");
  options.iterations = 10;
  CHECK(iterations_beyond_epochs(options, 640, 1) ==
        "--iterations 10 is more than the 9 of 3 epochs");
  options.iterations = 2;
  CHECK(pass_sizes(options, 641, 1) == Sizes{128});
  options.last_batch = LastBatch::kDrop;
  options.iterations = 0;
  CHECK(epoch_lengths(options, 641, 1) == Lengths{2, 2, 2});
  CHECK(pass_sizes(options, 641, 1) == Sizes{128});
  options = batches_of(0, 2);
  options.epochs = 3;
  options.batch_schedule = BatchSchedule("0:64,2:128");
  CHECK(epoch_lengths(options, 640, 1) == Lengths{10, 10, 5});
  CHECK(pass_sizes(options, 640, 1) == Sizes{32, 64});
}

TEST_CASE("epoch plan: an accumulation that no epoch fills is refused") {
  CHECK_NOTHROW(require_iterations(batches_of(128, 5), 640, 1));
  const std::string text = refused_text(batches_of(128, 1000), 640, 1);
  for (const char* part : {"--accumulate 1000", "128 images", "an epoch has 5", "--accumulate 5"})
    CHECK(text.find(part) != std::string::npos);
  CHECK_NOTHROW(require_iterations(batches_of(320, 2), 640, 1));
  refused_text(batches_of(320, 2), 640, 2);
  CHECK_NOTHROW(require_iterations(batches_of(320, 3), 641, 1));
  refused_text(batches_of(320, 3, LastBatch::kDrop), 641, 1);
}

TEST_CASE("epoch plan: so is a schedule with a later epoch without an iteration") {
  TrainOptions options = batches_of(0, 2);
  options.epochs = 4;
  options.batch_schedule = BatchSchedule("0:64,2:1280");
  CHECK_NOTHROW(require_iterations(options, 1280, 1));
  const std::string text = refused_text(options, 640, 1);
  CHECK(text.find("epoch 2 of --batch-schedule") != std::string::npos);
  options.last_batch = LastBatch::kDrop;
  refused_text(options, 1279, 1);
}

namespace {

TrainOptions capturable() {
  TrainOptions options;
  options.device = "cuda";
  options.transport = "nccl";
  options.feed = FeedFrom::kResident;
  return options;
}

/// Whether the obstacle of these options begins with `option`.
template <typename Change>
void check_obstacle(const std::string& option, Change change) {
  TrainOptions options = capturable();
  change(options);
  CAPTURE(option);
  CHECK(graph_obstacle(options).rfind(option, 0) == 0);
}

}  // namespace

TEST_CASE("graph: a step that the device does alone can be captured") {
  for (const char* mode : {"none", "gather-scatter", "allreduce", "ddp"}) {
    TrainOptions options = capturable();
    options.sync = mode;
    options.accumulate = 4;
    options.wire_dtype = "bf16";
    options.clip_norm = 1;
    CHECK(graph_obstacle(options).empty());
  }
}

TEST_CASE("graph: what the host takes part in is named") {
  check_obstacle("--device cpu", [](TrainOptions& o) { o.device = "cpu"; });
  check_obstacle("--transport mpi", [](TrainOptions& o) { o.transport = "mpi"; });
  check_obstacle("--feed loader", [](TrainOptions& o) { o.feed = FeedFrom::kLoader; });
  check_obstacle("--sync c10d", [](TrainOptions& o) { o.sync = "c10d"; });
  check_obstacle("--sync data-parallel", [](TrainOptions& o) { o.sync = "data-parallel"; });
  check_obstacle("--verify all", [](TrainOptions& o) { o.verify = "all"; });
  check_obstacle("--inject-fault",
                 [](TrainOptions& o) { o.inject_fault = parse_fault("nan@0:3"); });
}

namespace {

/// Of iterations of one pass each, which are warm-up: one letter each.
std::string warmups(const TrainOptions& options, const std::vector<std::int64_t>& sizes) {
  WarmupRule rule(options);
  std::string all;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    all += rule.counts(static_cast<std::int64_t>(i), {sizes[i]}) ? 'w' : '.';
  return all;
}

}  // namespace

TEST_CASE("warm-up: on a GPU the first batch of each size is searched for, and a graph captured") {
  const std::vector<std::int64_t> sizes = {512, 512, 512, 512, 512, 512, 336, 512, 512, 336};
  TrainOptions options;
  options.warmup = 2;
  options.device = "cpu";
  CHECK(warmups(options, sizes) == "ww........");
  options.device = "cuda";
  CHECK(warmups(options, sizes) == "ww....w...");
  options.warmup = 0;
  CHECK(warmups(options, sizes) == "w.....w...");
  options.graph = true;
  CHECK(warmups(options, sizes) == "wwwww.w...");
  // Epochs shorter than the steps before a capture, and a process that begins at a last batch.
  CHECK(warmups(options, {512, 512, 336, 512, 512, 336, 512, 512}) == "wwwww.w.");
  CHECK(warmups(options, {336, 512, 512, 512, 512, 512, 512}) == "wwwwww.");
  options.device = "cpu";  // --graph has no effect there
  CHECK(warmups(options, sizes) == "..........");
  // A resumed process searches and captures again.
  options.device = "cuda";
  WarmupRule resumed(options);
  CHECK(resumed.counts(1000, {512, 336}));
  options.graph = false;
  WarmupRule launched(options);
  CHECK(launched.counts(1000, {512, 336}));
  CHECK_FALSE(launched.counts(1001, {512, 512}));
}
