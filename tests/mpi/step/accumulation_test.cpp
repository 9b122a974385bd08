#include <doctest/doctest.h>

#include "mpi/short_training.h"

using namespace gradsync;
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
