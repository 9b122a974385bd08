// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "mpi/ranks.h"
#include "mpi/short_training.h"
#include "sync/sync_mode.h"
#include "train/iteration.h"

using namespace gradsync;
using gradsync::test::Ranks;
using gradsync::test::SmallSet;
using gradsync::test::Trained;

namespace {

constexpr std::int64_t kCrossIterationSteps = 10;

Trained trained(const SmallSet& set, const std::string& transport, Overlap overlap,
                const std::function<void(TrainOptions&)>& change = {}) {
  Ranks ranks(transport);
  TrainOptions options = test::short_options("ddp");
  options.overlap = overlap;
  if (change) change(options);
  return test::train_shortly(ranks.exchange, {*set.data, nullptr, torch::kCPU}, options,
                             kCrossIterationSteps);
}

double largest_gap(const Trained& a, const Trained& b) {
  return (a.parameters - b.parameters).abs().max().item<double>();
}

}  // namespace

TEST_CASE("a forward pass says what it comes to before it reads its parameters" * test::once()) {
  const torch::NoGradGuard no_grad;
  for (const char* model : {"lenet", "vgg11", "resnet18"}) {
    CAPTURE(model);
    const Replica replica = make_replica(model, 1, Layout::kNhwc);
    replica.network->eval();
    const torch::Tensor images = torch::randn({2, 3, 32, 32});
    const torch::Tensor expected = replica.network->forward(images);
    std::vector<torch::Tensor> kept;
    for (const torch::Tensor& parameter : replica.parameters) {
      kept.push_back(parameter.clone());
      parameter.fill_(std::numeric_limits<float>::quiet_NaN());
    }
    replica.network->set_gate([&](const torch::nn::Module& part) {
      for (const torch::Tensor& parameter : part.parameters())
        for (std::size_t i = 0; i < kept.size(); ++i)
          if (replica.parameters[i].is_same(parameter)) parameter.copy_(kept[i]);
    });
    CHECK(torch::equal(replica.network->forward(images), expected));
  }
}

TEST_CASE(
    "an exchange that overlaps the next step leaves the scheduling of other contenders as it is") {
  const int before = sched_getscheduler(0);
  Ranks ranks("tcp-ring");
  SyncSettings settings;
  settings.overlap = Overlap::kStep;
  const auto mode = make_sync_mode("ddp", ranks.exchange, settings);
  CHECK(sched_getscheduler(0) == before);
}

TEST_CASE("an exchange that overlaps the next step computes what ddp computes" *
          test::several_ranks()) {
  const SmallSet set;
  const int size = test::session().size();
  for (const char* transport : {"mpi", "tcp-ring", "two-level", "two-level-unequal"}) {
    CAPTURE(transport);
    const Trained waits = trained(set, transport, Overlap::kBackward),
                  carries = trained(set, transport, Overlap::kStep);
    CHECK(carries.iterations.size() == waits.iterations.size());
    if (size <= 2) CHECK(carries.hash == waits.hash);
    CHECK(largest_gap(carries, waits) <= 2e-4);  // other messages, another order of additions
    for (std::size_t i = 0; i < waits.iterations.size(); ++i)
      CHECK(carries.iterations[i].measured.loss ==
            doctest::Approx(waits.iterations[i].measured.loss));
  }
}

TEST_CASE("cut alike, the two are bit-equal on any number of ranks" * test::many_ranks()) {
  const SmallSet set;
  const auto one_message = [](TrainOptions& options) {
    options.first_bucket_bytes = options.bucket_cap_bytes = 1 << 20;
  };
  for (const char* transport : {"mpi", "tcp-ring", "two-level", "two-level-unequal"})
    CHECK(trained(set, transport, Overlap::kStep, one_message).hash ==
          trained(set, transport, Overlap::kBackward, one_message).hash);
}

TEST_CASE("so it does with other optimizers, several passes and 16 bits on the wire" *
          test::several_ranks()) {
  const SmallSet set;
  const std::vector<std::function<void(TrainOptions&)>> changes = {
      [](TrainOptions& options) { options.optimizer.name = "adam"; },
      [](TrainOptions& options) { options.optimizer.name = "lars"; },
      [](TrainOptions& options) { options.accumulate = 2; },
      [](TrainOptions& options) { options.wire_dtype = "bf16"; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    const double tolerance = i == 3 ? 1e-2 : 5e-4;
    CHECK(largest_gap(trained(set, "tcp-ring", Overlap::kStep, changes[i]),
                      trained(set, "tcp-ring", Overlap::kBackward, changes[i])) <= tolerance);
  }
}

TEST_CASE("what an iteration carries over is counted where it was") {
  const SmallSet set;
  const Trained carries = trained(set, "tcp-ring", Overlap::kStep);
  for (std::size_t i = 0; i < carries.iterations.size(); ++i) {
    CAPTURE(i);
    const RankIteration& measured = carries.iterations[i].measured;
    CHECK(carries.iterations[i].row.buckets.size() == measured.buckets.size());
    CHECK(carries.iterations[i].row.buckets.size() > 3);
    const auto gradients = static_cast<std::size_t>(Traffic::kGradients);
    if (i > 0)
      CHECK(measured.traffic_bytes[gradients] ==
            carries.iterations[1].measured.traffic_bytes[gradients]);
    const double parts = measured[Phase::kCompute] + measured[Phase::kExposed] +
                         measured[Phase::kWait] + measured[Phase::kOther];
    CHECK(parts == doctest::Approx(measured[Phase::kIteration]));
    for (const BucketTimes& bucket : measured.buckets) {
      CHECK(bucket.ready_s <= bucket.start_s);
      CHECK(bucket.start_s <= bucket.end_s);
    }
  }
}

TEST_CASE(
    "a gradient that is not finite is found on the rank that has it, though its update is "
    "deferred") {
  const SmallSet set;
  Ranks ranks("tcp-ring");
  TrainOptions options = test::short_options("ddp");
  options.overlap = Overlap::kStep;
  const Trained bad =
      test::train_shortly(ranks.exchange, {*set.data, nullptr, torch::kCPU}, options, 6,
                          torch::kCPU, [&](GradientGuard& guard, std::int64_t iteration) {
                            if (iteration == 4 && ranks.rank == 0) guard.poison_next();
                          });
  CHECK((bad.iterations[4].bad_tensor >= 0) == (ranks.rank == 0));
  CHECK(bad.iterations[3].bad_tensor < 0);
}
