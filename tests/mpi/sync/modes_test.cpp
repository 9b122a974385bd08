// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "data/cifar10.h"
#include "model/image_batch.h"
#include "mpi/ranks.h"
#include "options/options.h"
#include "sync/buckets.h"
#include "sync/flat_gradients.h"
#include "train/before_training.h"
#include "train/iteration.h"

using namespace gradsync;
using gradsync::test::Ranks;

namespace {

constexpr std::int64_t kSamples = 4;

torch::Tensor images_of(int rank, std::int64_t pass) {
  const auto generator =
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 + 10 * pass + rank));
  return torch::randn({kSamples, 3, 32, 32}, generator).contiguous(at::MemoryFormat::ChannelsLast);
}

torch::Tensor labels_of(int rank) {
  return (torch::arange(kSamples) * 3 + rank) % 10;
}

/// The mean over ranks of each rank's gradient, computed on this one rank, summed in double.
std::vector<torch::Tensor> mean_gradients(const std::string& model, int ranks, std::int64_t pass,
                                          std::int64_t passes) {
  std::vector<torch::Tensor> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    Replica replica = make_replica(model, 1, Layout::kNhwc);
    for (std::int64_t p = pass; p < pass + passes; ++p)
      cross_entropy(replica.network->forward(images_of(rank, p)), labels_of(rank), 1,
                    static_cast<double>(passes))
          .loss.backward();
    for (std::size_t i = 0; i < replica.parameters.size(); ++i) {
      const torch::Tensor one = replica.parameters[i].grad().to(torch::kFloat64);
      if (rank == 0)
        sums.push_back(one);
      else
        sums[i] += one;
    }
  }
  for (torch::Tensor& sum : sums)
    sum /= ranks;
  return sums;
}

/// Forward, backward and exchange of one pass, as the training step does it.
void run_pass(Ranks& ranks, SyncMode& mode, Replica& replica, std::int64_t pass, bool first,
              bool last, std::int64_t passes) {
  mode.before_forward(last);
  const auto local_loss = [&] {
    const torch::Tensor outputs = replica.network->forward(images_of(ranks.rank, pass));
    mode.before_backward(outputs, last);
    cross_entropy(outputs, labels_of(ranks.rank), 1, static_cast<double>(passes)).loss.backward();
  };
  RootLoss* root = mode.root_loss();
  if (!root) return local_loss();
  std::vector<torch::Tensor> images, labels;
  for (int r = 0; r < ranks.size; ++r) {
    images.push_back(images_of(r, pass));
    labels.push_back(labels_of(r));
  }
  const torch::Tensor all = torch::cat(images).contiguous(at::MemoryFormat::ChannelsLast);
  const torch::Tensor outputs =
      replica.network->forward(root->scatter_images({all, kSamples, Layout::kNhwc, first}));
  const torch::Tensor logits = root->gather_outputs(outputs);
  PassLoss loss;
  torch::Tensor gradient;
  if (logits.defined()) {
    loss = cross_entropy(logits, torch::cat(labels), ranks.size, static_cast<double>(passes));
    gradient = torch::autograd::grad({loss.loss}, {logits})[0];
  }
  const LossShare share = root->scatter_gradient(gradient, loss.sums);
  mode.before_backward(outputs, last);
  outputs.backward(share.gradient);
}

/// Largest difference between the replica's gradients and `expected`, relative to the largest
/// value.
double gradient_error(const Replica& replica, const std::vector<torch::Tensor>& expected) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const torch::Tensor mine = replica.parameters[i].grad().to(torch::kFloat64);
    worst = std::max(worst, (mine - expected[i]).abs().max().item<double>());
    scale = std::max(scale, expected[i].abs().max().item<double>());
  }
  return worst / scale;
}

void zero_gradients(Replica& replica) {
  for (auto& parameter : replica.parameters)
    parameter.mutable_grad().zero_();
}

/// Every collective of the iteration was recorded, whole, with what turning values took of it.
void check_records(Exchange& exchange, bool turns) {
  for (const CollectiveRecord& record : exchange.log().records()) {
    CHECK(record.ready_s <= record.start_s);
    CHECK(record.start_s <= record.end_s);
    if (turns && record.kind == CollectiveKind::kAllReduce)
      CHECK((record.convert_s >= 0 && record.convert_s <= record.end_s - record.start_s));
    else
      CHECK(std::isnan(record.convert_s));
  }
}

void check_mode(const std::string& name, const SyncSettings& settings, const std::string& model,
                std::int64_t passes, double tolerance, const std::string& transport = "mpi") {
  CAPTURE(name);
  CAPTURE(model);
  CAPTURE(passes);
  CAPTURE(transport);
  Ranks ranks(transport);
  Replica replica = make_replica(model, 1, Layout::kNhwc);
  const auto mode = make_sync_mode(name, ranks.exchange, settings);
  mode->attach(replica);
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
    ranks.exchange.log().begin_iteration(iteration);
    const std::int64_t pass = iteration * passes;
    for (std::int64_t p = 0; p < passes; ++p)
      run_pass(ranks, *mode, replica, pass + p, p == 0, p + 1 == passes, passes);
    mode->synchronize();
    check_records(ranks.exchange, settings.wire_dtype != "fp32");
    const bool has_average = !mode->root_loss() || ranks.rank == 0;
    if (has_average)
      CHECK(gradient_error(replica, mean_gradients(model, ranks.size, pass, passes)) <= tolerance);
    zero_gradients(replica);
  }
}

}  // namespace

TEST_CASE("flat gradients: an order of a checkpoint names each parameter once") {
  using Order = std::vector<std::int64_t>;
  CHECK(checked_order(Order{2, 0, 1}, 3) == std::vector<std::size_t>{2, 0, 1});
  for (const Order& order : {Order{0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 2}}) {
    CAPTURE(fmt::format("{}", fmt::join(order, ",")));
    CHECK_THROWS_WITH_AS(checked_order(order, 3),
                         "the checkpoint's order of buckets does not fit this network", Error);
  }
}

namespace {

bool aligned(std::span<float> values, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(values.data()) % bytes == 0;
}

}  // namespace

TEST_CASE("flat gradients: buckets and what they hold are aligned, and no byte more travels" *
          test::once()) {
  for (const char* model : {"lenet", "resnet18", "vgg11"}) {
    CAPTURE(model);
    Replica replica = make_replica(model, 1, Layout::kNhwc);
    auto order = module_order(replica.parameters.size());
    std::reverse(order.begin(), order.end());  // the bias of ten classes comes first
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i % 4 == 0) groups.emplace_back();
      groups.back().push_back(order[i]);
    }
    FlatGradients gradients(replica, GradientLayout(replica, groups));
    std::set<float*> seen;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      // LibTorch's host memory begins at a multiple of 64 bytes, that of a GPU of 512.
      CHECK(aligned(gradients.group(g), 16));
      CHECK((gradients.group(g).data() - gradients.group(0).data()) % 32 == 0);
      std::size_t values = 0;
      for (const std::size_t parameter : groups[g]) {
        const auto one = gradients.of(parameter);
        CHECK(one.data() == replica.parameters[parameter].grad().data_ptr<float>());
        CHECK(one.data() >= gradients.group(g).data());
        CHECK(one.data() + one.size() <= gradients.group(g).data() + gradients.group(g).size());
        if (one.size() % 4 == 0) CHECK(aligned(one, 16));
        CHECK(seen.insert(one.data()).second);
        values += one.size();
      }
      CHECK(gradients.group(g).size() == values);
    }
  }
}

TEST_CASE("whatever moves them, gradients are the mean over ranks" * test::many_ranks()) {
  for (const char* transport : {"shm", "tcp-ring", "two-level", "two-level-unequal"})
    for (const char* mode : {"allreduce", "ddp", "c10d"}) {
      check_mode(mode, {"flat", 2048, 40000, "fp32"}, "lenet", 1, 1e-5, transport);
      check_mode(mode, {"tensor", 1, 1, "fp32"}, "lenet", 2, 1e-5, transport);
      if (mode_named(mode).casts)
        check_mode(mode, {"flat", 2048, 40000, "bf16"}, "lenet", 1, 2e-2, transport);
    }
}

TEST_CASE("a mode is what its row of the table says" * test::once()) {
  Ranks ranks;
  for (const Mode& row : kModes) {
    const auto mode = make_sync_mode(row.name, ranks.exchange, {});
    CHECK((mode->root_loss() != nullptr) == row.root_only);
    SyncSettings deferring;
    deferring.overlap = row.defers ? Overlap::kStep : Overlap::kBackward;
    const auto deferred = make_sync_mode(row.name, ranks.exchange, deferring);
    CHECK((deferred->deferred() != nullptr) == row.defers);
  }
}

TEST_CASE("gradients after each mode are the mean over ranks computed in double") {
  const SyncSettings small_buckets{"flat", 2048, 40000, "fp32"};
  for (const Mode& entry : kModes) {
    if (!entry.exchanges && test::session().size() > 1) continue;
    if (!entry.changes.empty() || entry.sharded) continue;  // tests of their own: less_test.cpp
    for (const std::int64_t passes : {1, 3})
      check_mode(std::string(entry.name), small_buckets, "lenet", passes, 1e-5);
  }
}

TEST_CASE("one message a parameter gives the same gradients" * test::several_ranks()) {
  for (const char* name : {"allreduce", "gather-scatter"})
    check_mode(name, {"tensor", 1, 1, "fp32"}, "lenet", 1, 1e-5);
}

TEST_CASE("a network with batch norm and buckets of the default sizes" *
          test::at_most_two_ranks()) {
  for (const char* name : {"ddp", "c10d", "data-parallel"})
    check_mode(name, {}, "vgg11", 1, 1e-4);
}

TEST_CASE("16 bits on the wire stay within their precision" * test::several_ranks()) {
  const double roundings = test::session().size();  // one a rank, docs/exchange.md
  for (const char* mode : {"allreduce", "ddp"}) {
    check_mode(mode, {"flat", 2048, 40000, "bf16"}, "lenet", 1, std::ldexp(roundings, -8));
    check_mode(mode, {"flat", 2048, 40000, "fp16"}, "lenet", 1, std::ldexp(roundings, -11));
  }
}

TEST_CASE("16 bits on the wire give the same sums in allreduce and ddp" * test::several_ranks()) {
  // Where ranks are added in their order, the sums do not depend on how the gradients are cut.
  for (const char* wire : {"bf16", "fp16"})
    for (const char* transport : {"shm", "mpi"}) {
      if (std::string(transport) == "mpi" && test::session().size() > 2) continue;
      CAPTURE(wire);
      CAPTURE(transport);
      std::vector<torch::Tensor> of_allreduce, of_ddp;
      for (auto* gradients : {&of_allreduce, &of_ddp}) {
        Ranks ranks(transport);
        Replica replica = make_replica("lenet", 1, Layout::kNhwc);
        const auto mode = make_sync_mode(gradients == &of_ddp ? "ddp" : "allreduce", ranks.exchange,
                                         {"flat", 2048, 40000, wire});
        mode->attach(replica);
        run_pass(ranks, *mode, replica, 0, true, true, 1);
        mode->synchronize();
        for (const torch::Tensor& parameter : replica.parameters)
          gradients->push_back(parameter.grad().clone());
      }
      for (std::size_t i = 0; i < of_ddp.size(); ++i)
        CHECK(torch::equal(of_ddp[i], of_allreduce[i]));
    }
}

TEST_CASE("without exchange the ranks' gradients differ, so the comparison can fail") {
  Ranks ranks;
  Replica replica = make_replica("lenet", 1, Layout::kNhwc);
  const auto mode = make_sync_mode("none", ranks.exchange, {});
  mode->attach(replica);
  run_pass(ranks, *mode, replica, 0, true, true, 1);
  mode->synchronize();
  const double error = gradient_error(replica, mean_gradients("lenet", ranks.size, 0, 1));
  CHECK((ranks.size == 1 ? error <= 1e-6 : error > 1e-2));
}

TEST_CASE(
    "ddp exchanges as many buckets as its caps make, in the observed order after iteration 0") {
  Ranks ranks;
  Replica replica = make_replica("lenet", 1, Layout::kNhwc);
  const auto mode = make_sync_mode("ddp", ranks.exchange, {"flat", 1000, 100000, "fp32"});
  mode->attach(replica);
  for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
    ranks.exchange.log().begin_iteration(iteration);
    run_pass(ranks, *mode, replica, iteration, true, true, 1);
    mode->synchronize();
    std::int64_t bytes = 0;
    std::size_t buckets = 0;
    for (const CollectiveRecord& record : ranks.exchange.log().records()) {
      if (record.kind != CollectiveKind::kAllReduce) continue;
      bytes += record.bytes;
      ++buckets;
      CHECK(record.ready_s <= record.start_s);
    }
    CHECK(bytes == 61780 * 4);
    // fc3 (3,400 bytes) closes the first; fc2 and fc1 (232,320) the second; the rest is the third.
    CHECK(buckets == 3);
    zero_gradients(replica);
  }
}

TEST_CASE("buckets close when they reach their limit" * test::once()) {
  const auto ends = [](const std::vector<Bucket>& buckets) {
    std::vector<std::size_t> all;
    for (const Bucket& bucket : buckets)
      all.push_back(bucket.last);
    return all;
  };
  CHECK(ends(cut_into_buckets({4, 4, 4, 4, 4}, 4, 8)) == std::vector<std::size_t>{1, 3, 5});
  CHECK(ends(cut_into_buckets({4, 4, 4, 4}, 4, 8)) == std::vector<std::size_t>{1, 3, 4});
  CHECK(ends(cut_into_buckets({100, 1, 1}, 4, 8)) == std::vector<std::size_t>{1, 3});
  CHECK(ends(cut_into_buckets({1}, 4, 8)) == std::vector<std::size_t>{1});
  CHECK(cut_into_buckets({}, 4, 8).empty());
}

TEST_CASE("every mode passes --verify-modes on images, and none is seen to differ") {
  test::SharedFolder folder;
  if (test::session().root()) synthesize(folder.path() / "set", 3, 2048, 64);
  MPI_Barrier(test::session().world());
  const Cifar10 data(folder.path() / "set");
  Ranks ranks;
  TrainOptions options;
  options.model = "lenet";
  options.batch_per_rank = 16;
  options.loader_threads = 0;
  ComputeSettings compute;
  options.optimizer.scales_loss = true;
  CHECK(verify_modes(ranks.exchange, data, options, compute).size() == 8);
  options.optimizer.scales_loss = false;
  const auto rows = verify_modes(ranks.exchange, data, options, compute);
  REQUIRE(rows.size() == std::size(kModes));
  for (const VerificationRow& row : rows) {
    CAPTURE(row.mode);
    CAPTURE(row.difference);
    CHECK(row.passed);
    if (row.mode == "none" && ranks.size > 1) {
      CHECK(!row.ranks_equal);
      CHECK(row.difference > row.tolerance);
    }
  }
}
