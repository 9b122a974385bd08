// SPDX-License-Identifier: BSD-3-Clause
// Modes that send less than the gradients, or keep a part of the state, against their formulas.
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include "mpi/ranks.h"
#include "mpi/short_training.h"
#include "sync/compress.h"
#include "sync/sync_mode.h"
#include "train/iteration.h"

using namespace gradsync;
using gradsync::test::Ranks;

namespace {

using Tensors = std::vector<torch::Tensor>;

/// Values that each rank can draw for every other one.
torch::Tensor drawn(const torch::Tensor& like, int rank, std::int64_t iteration,
                    std::size_t index) {
  const auto generator = at::detail::createCPUGenerator(
      static_cast<std::uint64_t>(10'000 * iteration + 100 * rank) + index);
  return torch::randn(like.sizes(), generator);
}

/// A replica whose gradients of an iteration are `drawn`.
class Drawn {
 public:
  Drawn(const std::string& name, const SyncSettings& settings, Layout layout = Layout::kNchw,
        const std::string& model = "lenet")
      : replica(make_replica(model, 1, layout)),
        mode(make_sync_mode(name, ranks.exchange, settings)) {
    mode->attach(replica);
  }

  void exchange(std::int64_t iteration) {
    ranks.exchange.log().begin_iteration(iteration);
    const torch::NoGradGuard no_grad;
    mode->before_forward(true);
    mode->before_backward({}, true);
    for (std::size_t i = 0; i < replica.parameters.size(); ++i)
      replica.parameters[i].mutable_grad().copy_(
          drawn(replica.parameters[i], ranks.rank, iteration, i));
    mode->synchronize();
  }

  std::map<std::string, torch::Tensor> carried() {
    std::map<std::string, torch::Tensor> all;
    for (const NamedTensor& one : mode->carried())
      all[one.name] = one.values.clone();
    return all;
  }

  Ranks ranks;
  Replica replica;
  std::unique_ptr<SyncMode> mode;
};

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return ((a.to(torch::kFloat64) - b.to(torch::kFloat64)).norm() / b.to(torch::kFloat64).norm())
      .item<double>();
}

/// The rule of PyTorch's hook for what is worth a factorization.
bool factorized(const torch::Tensor& parameter, std::int64_t rank) {
  const std::int64_t rows = parameter.size(0), columns = parameter.numel() / rows;
  return 2 * std::min({rank, rows, columns}) * (rows + columns) < rows * columns;
}

}  // namespace

namespace {

/// Shared memory that has no room for the second thing asked for, but for smaller ones after it.
class TightTransport : public Transport {
 public:
  explicit TightTransport(MPI_Comm node)
      : Transport("shm", test::session().rank(), test::session().size()), shm_(node) {}

  double run(const Collective& call) override { return shm_.run(call); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return ++asked_ == 2 ? nullptr : shm_.allocate(bytes);
  }
  SharedAllReduce* posted() override { return shm_.posted(); }

 private:
  ShmTransport shm_;
  int asked_ = 0;
};

}  // namespace

TEST_CASE("powersgd: its messages are in shared memory together or not at all" *
          test::several_ranks()) {
  SyncSettings settings;
  settings.first_bucket_bytes = settings.bucket_cap_bytes = 4096;
  Drawn usual("powersgd", settings);
  TightTransport transport(test::session().node());
  Exchange exchange(test::session(), transport, VerifyLevel::kOff);
  Replica replica = make_replica("lenet", 1, Layout::kNchw);
  const auto mode = make_sync_mode("powersgd", exchange, settings);
  mode->attach(replica);
  for (const std::int64_t iteration : {0, 1, 2}) {
    usual.exchange(iteration);
    exchange.log().begin_iteration(iteration);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < replica.parameters.size(); ++i)
      replica.parameters[i].mutable_grad().copy_(
          drawn(replica.parameters[i], exchange.session().rank(), iteration, i));
    mode->synchronize();
    for (std::size_t i = 0; i < replica.parameters.size(); ++i)
      CHECK(distance(replica.parameters[i].grad(), usual.replica.parameters[i].grad()) < 1e-4);
  }
}

namespace {

/// The paper's algorithm on one matrix, of all ranks, in double.
struct LowRankReference {
  torch::Tensor q;  ///< [columns, rank]
  Tensors errors;   ///< by rank

  /// Takes the ranks' gradients, and returns what they step by.
  torch::Tensor step(Tensors matrices) {
    torch::Tensor p, projected;
    const auto basis = std::get<0>(at::linalg_qr(q));
    for (std::size_t rank = 0; rank < matrices.size(); ++rank) {
      matrices[rank] = matrices[rank] + errors[rank];
      const torch::Tensor one = matrices[rank].mm(basis);
      p = rank == 0 ? one : p + one;
    }
    p = std::get<0>(at::linalg_qr(p));
    for (const torch::Tensor& matrix : matrices) {
      const torch::Tensor one = matrix.t().mm(p) / static_cast<double>(matrices.size());
      projected = projected.defined() ? projected + one : one;
    }
    q = projected;
    torch::Tensor approximation = p.mm(projected.t());
    for (std::size_t rank = 0; rank < matrices.size(); ++rank)
      errors[rank] = matrices[rank] - approximation;
    return approximation;
  }
};

constexpr std::int64_t kLowRank = 2, kLowRankStart = 1;

/// What travels is as long as the formula says, and what travels whole is the mean.
void check_bytes_and_means(Drawn& made, std::int64_t iteration) {
  std::int64_t bytes = 0, expected_bytes = 0;
  for (const CollectiveRecord& record : made.ranks.exchange.log().records())
    bytes += record.bytes;
  for (std::size_t i = 0; i < made.replica.parameters.size(); ++i) {
    const torch::Tensor& parameter = made.replica.parameters[i];
    const std::int64_t rows = parameter.size(0), columns = parameter.numel() / rows;
    const bool low = iteration >= kLowRankStart && factorized(parameter, kLowRank);
    expected_bytes += 4 * (low ? kLowRank * (rows + columns) : parameter.numel());
    torch::Tensor mean = torch::zeros_like(parameter, torch::kFloat64);
    for (int rank = 0; rank < made.ranks.size; ++rank)
      mean += drawn(parameter, rank, iteration, i).to(torch::kFloat64) / made.ranks.size;
    if (!low) CHECK(distance(parameter.grad(), mean) < 1e-6);
  }
  CHECK(bytes == expected_bytes);
}

/// Gradients and errors are those of the paper's algorithm, computed in double.
void check_powersgd() {
  for (const std::int64_t cap : {20'000, 25 << 20}) {
    SyncSettings settings{"flat", cap, cap, "fp32"};
    settings.powersgd_rank = kLowRank;
    settings.powersgd_start = kLowRankStart;
    Drawn made("powersgd", settings);
    const auto ranks = static_cast<std::size_t>(made.ranks.size);
    std::map<std::string, std::size_t> matrix_of;  // name of the mode, parameter
    std::map<std::string, LowRankReference> references;
    for (const auto& [name, value] : made.carried())
      for (std::size_t i = 0; i < made.replica.parameters.size(); ++i) {
        const torch::Tensor& parameter = made.replica.parameters[i];
        if (!name.starts_with("error/") || !factorized(parameter, kLowRank) ||
            value.numel() != parameter.numel())
          continue;
        const std::string matrix = name.substr(6);
        matrix_of[matrix] = i;
        references[matrix] = {made.carried().at("factor/" + matrix).to(torch::kFloat64).t(),
                              Tensors(ranks, torch::zeros_like(value, torch::kFloat64))};
      }
    REQUIRE(matrix_of.size() == 5);  // all but the bias of LeNet, of different sizes
    for (std::int64_t iteration = 0; iteration < 5; ++iteration) {
      made.exchange(iteration);
      check_bytes_and_means(made, iteration);
      if (iteration < kLowRankStart) continue;
      for (auto& [name, reference] : references) {
        const torch::Tensor& parameter = made.replica.parameters[matrix_of.at(name)];
        Tensors gradients;
        for (int rank = 0; rank < made.ranks.size; ++rank)
          gradients.push_back(drawn(parameter, rank, iteration, matrix_of.at(name))
                                  .to(torch::kFloat64)
                                  .view_as(reference.errors[0]));
        const torch::Tensor expected = reference.step(gradients);
        CHECK(distance(parameter.grad().view_as(expected), expected) < 1e-4);
        CHECK(distance(made.carried().at("error/" + name),
                       reference.errors[static_cast<std::size_t>(made.ranks.rank)]) < 1e-4);
      }
    }
  }
}

}  // namespace

TEST_CASE("powersgd: a checkpoint in between changes no bit" * test::several_ranks()) {
  SyncSettings settings{"flat", 1 << 20, 1 << 20, "fp32"};
  settings.powersgd_rank = 5;  // more than are worked on at a time
  Drawn looked_at("powersgd", settings), left("powersgd", settings);
  for (const std::int64_t iteration : {0, 1, 2}) {
    looked_at.exchange(iteration);
    looked_at.carried();
    left.exchange(iteration);
    for (std::size_t i = 0; i < left.replica.parameters.size(); ++i)
      CHECK(
          torch::equal(looked_at.replica.parameters[i].grad(), left.replica.parameters[i].grad()));
  }
}

TEST_CASE("powersgd: 16 bits on the wire stay within their precision" * test::several_ranks()) {
  SyncSettings settings{"flat", 1 << 20, 1 << 20, "fp32"};
  Drawn exact("powersgd", settings);
  exact.exchange(0);
  settings.wire_dtype = "bf16";
  Drawn narrow("powersgd", settings);
  narrow.exchange(0);
  for (std::size_t i = 0; i < exact.replica.parameters.size(); ++i)
    CHECK(distance(narrow.replica.parameters[i].grad(), exact.replica.parameters[i].grad()) <
          std::ldexp(4.0 * exact.ranks.size, -8));
}

TEST_CASE("powersgd: whole gradients of its start travel in 16 bits too" * test::several_ranks()) {
  SyncSettings settings{"flat", 1 << 20, 1 << 20, "bf16"};
  settings.powersgd_start = 1;
  Drawn narrow("powersgd", settings);
  narrow.exchange(0);
  std::int64_t bytes = 0;
  for (const CollectiveRecord& record : narrow.ranks.exchange.log().records())
    bytes += record.bytes;
  CHECK(bytes == 2 * narrow.replica.parameter_count());
}

TEST_CASE("vectors are made orthonormal, whatever they were" * test::once()) {
  constexpr std::int64_t kRank = 4, kCount = 50;
  std::vector<float> vectors(kRank * kCount);
  draw_normal(vectors, 1);
  const auto at = [&](std::int64_t c) { return vectors.begin() + c * kCount; };
  SUBCASE("independent") {}
  SUBCASE("all zero") {
    std::fill(vectors.begin(), vectors.end(), 0.0f);
  }
  SUBCASE("equal") {
    std::copy(at(0), at(1), at(2));
  }
  SUBCASE("nearly equal") {
    std::copy(at(0), at(1), at(3));
    vectors[3 * kCount] += 1e-5f;
  }
  SUBCASE("of very different lengths") {
    std::transform(at(1), at(2), at(1), [](float value) { return 1e-18f * value; });
    std::transform(at(2), at(3), at(2), [](float value) { return 1e12f * value; });
  }
  orthonormalize(vectors, kRank);
  const torch::Tensor made = torch::from_blob(vectors.data(), {kRank, kCount}).to(torch::kFloat64);
  CHECK((made.mm(made.t()) - torch::eye(kRank, torch::kFloat64)).abs().max().item<double>() < 1e-5);
}

TEST_CASE("drawn values are near a normal distribution" * test::once()) {
  std::vector<float> values(100'000);
  draw_normal(values, 3);
  const torch::Tensor all = torch::from_blob(values.data(), {100'000});
  CHECK(std::abs(all.mean().item<double>()) < 0.02);
  CHECK(all.std().item<double>() == doctest::Approx(1).epsilon(0.02));
}

TEST_CASE("the largest values are found, of equal ones the first" * test::once()) {
  const auto found = [](const std::vector<float>& values, std::size_t count) {
    std::vector<std::int32_t> indices(count);
    find_largest(values, indices);
    return indices;
  };
  using Indices = std::vector<std::int32_t>;
  CHECK(found({1, -5, 3, 0}, 2) == Indices{1, 2});
  CHECK(found({0, 0, 0, 0}, 2) == Indices{0, 1});
  CHECK(found({2, -2, 2, 2, 3}, 3) == Indices{0, 1, 4});
  CHECK(found({1, 2, 3}, 3) == Indices{0, 1, 2});
  CHECK(found({1, NAN, -INFINITY}, 1) == Indices{1});
  CHECK(found({}, 0).empty());
  std::vector<float> many(20'000);
  for (const float scale : {1.0f, 1e-30f}) {
    draw_normal(many, 5);
    for (float& value : many)
      value *= scale;
    many[777] = many[778];
    for (const std::size_t count : {std::size_t{1}, std::size_t{200}, std::size_t{19'999}}) {
      std::vector<std::int32_t> expected(many.size());
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
        return std::abs(many[static_cast<std::size_t>(a)]) >
               std::abs(many[static_cast<std::size_t>(b)]);
      });
      expected.resize(count);
      std::sort(expected.begin(), expected.end());
      CHECK(found(many, count) == expected);
    }
  }
}

namespace {

/// What was sent and what is kept is the gradient, exactly.
void check_top_k() {
  for (const double percent : {0.5, 10.0, 100.0}) {
    CAPTURE(percent);
    SyncSettings settings{"flat", 100'000, 100'000, "fp32"};
    settings.top_k_percent = percent;
    Drawn made("top-k", settings);
    for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
      const auto before = made.carried();
      // All ranks' errors, for the mean of what they send.
      made.exchange(iteration);
      const auto after = made.carried();
      std::size_t next = made.replica.parameters.size();
      std::int64_t bytes = 0;
      for (const CollectiveRecord& record : made.ranks.exchange.log().records())
        bytes += record.bytes;
      std::int64_t expected_bytes = 0;
      for (std::size_t bucket = 0; bucket < before.size(); ++bucket) {
        const std::string name = "error/" + std::to_string(bucket);
        const torch::Tensor& kept = after.at(name);
        const auto taken =
            static_cast<std::int64_t>(std::ceil(percent / 100 * static_cast<double>(kept.numel())));
        expected_bytes += 8 * taken;
        // The layout of the bucket is that of the gradients, which this rank's own show.
        torch::Tensor gradient = torch::empty_like(kept), mean = torch::empty_like(kept);
        const float* begin = nullptr;
        std::vector<std::size_t> members;
        for (std::int64_t left = kept.numel(); left > 0;) {
          members.push_back(--next);
          left -= made.replica.parameters[next].numel();
          const float* at = made.replica.parameters[next].grad().data_ptr<float>();
          begin = begin == nullptr ? at : std::min(begin, at);
        }
        for (const std::size_t i : members) {
          const torch::Tensor& parameter = made.replica.parameters[i];
          const std::int64_t at = parameter.grad().data_ptr<float>() - begin;
          gradient.narrow(0, at, parameter.numel())
              .copy_(drawn(parameter, made.ranks.rank, iteration, i).flatten());
          mean.narrow(0, at, parameter.numel()).copy_(parameter.grad().flatten());
        }
        const torch::Tensor whole = before.at(name) + gradient;
        const torch::Tensor sent = whole - kept;
        CHECK((kept == 0).sum().item<std::int64_t>() >= taken);
        CHECK(torch::equal(torch::where(kept == 0, whole, torch::zeros_like(whole)), sent));
        const double least = sent.abs().masked_fill(kept != 0, INFINITY).min().item<double>();
        CHECK(least >= kept.abs().max().item<double>());
        std::vector<double> sum(static_cast<std::size_t>(sent.numel()));
        for (std::int64_t i = 0; i < sent.numel(); ++i)
          sum[static_cast<std::size_t>(i)] = sent[i].item<float>();
        test::session().sum(sum);
        const torch::Tensor expected = torch::tensor(sum, torch::kFloat64) / made.ranks.size;
        CHECK(distance(mean, expected) < 1e-6);
      }
      CHECK(bytes == expected_bytes);
      CHECK(next == 0);
    }
  }
}

}  // namespace

namespace {

constexpr std::int64_t kTrained = 7;

test::Trained trained(const test::SmallSet& set, const TrainOptions& options,
                      const std::string& transport = "mpi") {
  Ranks ranks(transport);
  return test::train_shortly(ranks.exchange, {*set.data, nullptr, torch::kCPU}, options, kTrained);
}

}  // namespace

TEST_CASE("local-sgd: averaging each iteration trains as allreduce does") {
  const test::SmallSet set;
  TrainOptions options = test::short_options("local-sgd");
  options.local_steps = 1;
  const test::Trained local = trained(set, options);
  const test::Trained reference = trained(set, test::short_options("allreduce"));
  CHECK(distance(local.parameters, reference.parameters) < 1e-5);
  options.local_start = kTrained;
  CHECK(distance(trained(set, options).parameters, reference.parameters) < 1e-6);
}

TEST_CASE("local-sgd: it averages in the iterations of PyTorch's PeriodicModelAverager" *
          test::several_ranks()) {
  const test::SmallSet set;
  TrainOptions options = test::short_options("local-sgd");
  options.local_start = 2;
  options.local_steps = 3;
  const test::Trained made = trained(set, options);
  std::string what;  // of each iteration: gradients, parameters, or nothing
  for (const FinishedIteration& one : made.iterations) {
    const auto& bytes = one.measured.traffic_bytes;
    what += bytes[static_cast<std::size_t>(Traffic::kGradients)] > 0    ? 'g'
            : bytes[static_cast<std::size_t>(Traffic::kParameters)] > 0 ? 'p'
                                                                        : '-';
  }
  CHECK(what == "ggp--p-");
  CHECK(test::session().equal(std::stoull(made.hash, nullptr, 16)));  // `publish` averages
}

namespace {

/// With the outer optimizer local-sgd is DiLoCo, computed in double.
void check_outer(const std::string& model, std::size_t parts) {
  constexpr std::int64_t kStart = 2;
  SyncSettings settings;
  settings.local_start = kStart;
  settings.local_steps = 2;
  settings.outer_nesterov = true;
  Drawn made("local-sgd", settings, Layout::kNchw, model);
  torch::Tensor anchor = flat_parameters(made.replica).to(torch::kFloat64);
  torch::Tensor momentum = torch::zeros_like(anchor);
  const torch::NoGradGuard no_grad;
  for (std::int64_t iteration = 0; iteration < 7; ++iteration) {
    made.exchange(iteration);
    for (std::size_t i = 0; i < made.replica.parameters.size(); ++i)
      made.replica.parameters[i].sub_(made.replica.parameters[i].grad(), 0.01);
    const torch::Tensor before = flat_parameters(made.replica).clone();
    made.mode->after_update();
    const torch::Tensor after = flat_parameters(made.replica);
    if (iteration < kStart || iteration % 2 != 0) {
      CHECK(torch::equal(before, after));
      if (iteration < kStart) anchor = after.to(torch::kFloat64);
      continue;
    }
    CHECK(made.ranks.exchange.log().records().size() == parts);
    std::vector<double> sum(static_cast<std::size_t>(before.numel()));
    std::copy_n(before.data_ptr<float>(), sum.size(), sum.begin());
    test::session().sum(sum);
    const torch::Tensor way = anchor - torch::tensor(sum, torch::kFloat64) / made.ranks.size;
    momentum = 0.9 * momentum + way;
    anchor = anchor - 0.7 * (way + 0.9 * momentum);
    CHECK(distance(after, anchor) < 1e-6);
  }
  // An evaluation sees the mean, and training continues from what this rank had.
  const torch::Tensor own = flat_parameters(made.replica).clone();
  made.mode->publish();
  made.mode->withdraw();
  CHECK(torch::equal(flat_parameters(made.replica), own));
}

}  // namespace

TEST_CASE("local-sgd: the way of a large network travels in parts" * test::several_ranks()) {
  check_outer("vgg11", 36);  // 9,231,114 parameters, 2^18 in each
}

TEST_CASE("local-sgd: what is published is not rounded to the type on the wire") {
  SyncSettings settings;
  settings.wire_dtype = "bf16";
  settings.local_start = 1000;
  Drawn made("local-sgd", settings);
  const torch::NoGradGuard no_grad;
  Tensors before;
  for (std::size_t i = 0; i < made.replica.parameters.size(); ++i) {
    torch::Tensor& parameter = made.replica.parameters[i];
    parameter.add_(drawn(parameter, /*rank=*/0, /*iteration=*/0, i));  // as on all ranks
    before.push_back(parameter.clone());
  }
  made.mode->publish();
  for (std::size_t i = 0; i < before.size(); ++i)
    CHECK(distance(made.replica.parameters[i], before[i]) < 1e-6);
  made.mode->withdraw();
}

TEST_CASE("local-sgd: 16 bits on the wire are of the way since the last averaging" *
          test::several_ranks()) {
  const test::SmallSet set;
  TrainOptions options = test::short_options("local-sgd");
  options.local_steps = 2;
  const torch::Tensor start = flat_parameters(make_replica("lenet", options.seed, Layout::kNhwc));
  const torch::Tensor exact = trained(set, options).parameters;
  options.wire_dtype = "bf16";
  const torch::Tensor narrow = trained(set, options).parameters;
  // Each averaging rounds by 2^-8 of the way, which is a small part of the parameters.
  CHECK((narrow - exact).norm().item<double>() <
        std::ldexp(4.0, -8) * (exact - start).norm().item<double>());
  CHECK(!torch::equal(narrow, exact));
}

namespace {

/// A sharded mode trains as ddp does, and a rank keeps the optimizer's state of its part.
void check_sharded(const std::string& mode, bool blocks) {
  const test::SmallSet set;
  for (const char* optimizer : {"sgd", "adam"})
    for (const char* transport : {"mpi", "shm", "tcp-ring"})
      for (const std::int64_t accumulate : {1, 2}) {
        CAPTURE(mode);
        CAPTURE(optimizer);
        CAPTURE(transport);
        CAPTURE(accumulate);
        TrainOptions options = test::short_options(mode);
        options.optimizer.name = optimizer;
        options.accumulate = accumulate;
        options.fsdp_blocks = blocks;
        if (accumulate > 1) options.clip_norm = 0.05;  // every step is over it
        const test::Trained sharded = trained(set, options, transport);
        options.sync = "ddp";
        const test::Trained reference = trained(set, options, transport);
        // Adam divides by roots of small numbers.
        CHECK(distance(sharded.parameters, reference.parameters) <
              (options.optimizer.name == "adam" ? 1e-3 : 1e-5));
        CHECK(test::session().equal(std::stoull(sharded.hash, nullptr, 16)));
      }
  Ranks ranks;
  Replica replica = make_replica("lenet", 1, Layout::kNhwc);
  SyncSettings settings{"flat", 2048, 40000, "fp32"};
  settings.fsdp_blocks = blocks;
  const auto made = make_sync_mode(mode, ranks.exchange, settings);
  const torch::Tensor before = flat_parameters(replica).clone();
  made->attach(replica);
  made->publish();
  CHECK(torch::equal(flat_parameters(replica), before));
  made->withdraw();
  const auto optimizer = make_optimizer(made->stepped(replica), OptimizerSettings());
  std::int64_t values = 0;
  for (std::size_t i = 0; i < optimizer->stepped().parameters.size(); ++i)
    values += optimizer->moment(0, i).numel();
  CHECK(values * ranks.size >= replica.parameter_count());
  CHECK(values * ranks.size < replica.parameter_count() + 32 * ranks.size);
}

void check_zero1() {
  check_sharded("zero1", true);
}

/// Comes to its first layer twice, as a network whose logits are made by its embedding, and to one
/// that is given another order than the modules'.
class Tied : public Network {
 public:
  Tied() {
    register_module("last", last_);
    register_module("first", first_);
    register_module("second", second_);
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(at(first_)(x));
    x = torch::relu(at(second_)(x));
    x = at(last_)(x);
    return torch::linear(x, at(first_)->weight);
  }

 private:
  torch::nn::Linear last_{24, 12}, first_{12, 20}, second_{20, 24};
};

/// A pass of the network with gradients of this rank, `iterations` times.
void train_tied(Exchange& exchange, Replica& replica, SyncMode& mode, int rank) {
  mode.attach(replica);
  const auto optimizer = make_optimizer(mode.stepped(replica), OptimizerSettings());
  for (std::int64_t iteration = 0; iteration < 4; ++iteration) {
    exchange.log().begin_iteration(iteration);
    mode.before_forward(true);
    replica.network->set_gate(mode.gate());
    const torch::Tensor outputs =
        replica.network->forward(drawn(torch::empty({5, 12}), rank, iteration, 0));
    replica.network->set_gate({});
    mode.before_backward(outputs, true);
    outputs.pow(2).mean().backward();
    mode.synchronize();
    optimizer->step(0.1, 1);
    mode.after_update();
  }
  mode.publish();
}

Replica tied_replica() {
  torch::manual_seed(3);
  Replica replica;
  replica.network = std::make_shared<Tied>();
  for (auto& item : replica.network->named_parameters()) {
    replica.parameters.push_back(item.value());
    replica.names.push_back(item.key());
  }
  return replica;
}

void check_fsdp() {
  check_sharded("fsdp", true);
  check_sharded("fsdp", false);
  Ranks ranks;
  Replica reference = tied_replica();
  train_tied(ranks.exchange, reference, *make_sync_mode("allreduce", ranks.exchange, {}),
             ranks.rank);
  for (const char* name : {"zero1", "fsdp"}) {
    CAPTURE(name);
    Replica replica = tied_replica();
    const auto mode = make_sync_mode(name, ranks.exchange, {});
    train_tied(ranks.exchange, replica, *mode, ranks.rank);
    CHECK(distance(flat_parameters(replica), flat_parameters(reference)) < 1e-6);
  }
}

}  // namespace

TEST_CASE("fsdp: a resumed run knows in which order the units come" * test::several_ranks()) {
  const auto gathered = [](SyncMode& mode, Ranks& ranks, Replica& replica, std::int64_t iteration) {
    ranks.exchange.log().begin_iteration(iteration);
    mode.before_forward(true);
    replica.network->set_gate(mode.gate());
    const torch::Tensor outputs = replica.network->forward(torch::ones({2, 3, 32, 32}));
    replica.network->set_gate({});
    mode.before_backward(outputs, true);
    outputs.sum().backward();
    mode.synchronize();
    return ranks.exchange.log().traffic()[static_cast<std::size_t>(Traffic::kParameters)];
  };
  std::vector<std::int64_t> state;
  std::int64_t steady_bytes = 0;
  {
    Ranks ranks;
    Replica replica = make_replica("mlp:64x6", 1, Layout::kNchw);
    const auto mode = make_sync_mode("fsdp", ranks.exchange, {});
    mode->attach(replica);
    CHECK(mode->state().empty());
    const std::int64_t first_bytes = gathered(*mode, ranks, replica, 0);
    steady_bytes = gathered(*mode, ranks, replica, 1);
    CHECK(steady_bytes < first_bytes);
    state = mode->state();
  }
  Ranks ranks;
  Replica replica = make_replica("mlp:64x6", 1, Layout::kNchw);
  const auto mode = make_sync_mode("fsdp", ranks.exchange, {});
  mode->attach(replica);
  mode->restore(state);
  CHECK(gathered(*mode, ranks, replica, 2) == steady_bytes);
  CHECK_THROWS_WITH_AS(mode->restore({0, 99}), doctest::Contains("order of units"), Error);
}

TEST_CASE("fsdp: parameters are here only while a pass needs them" * test::several_ranks()) {
  Ranks ranks;
  Replica replica = make_replica("mlp:64x6", 1, Layout::kNchw);
  const auto mode = make_sync_mode("fsdp", ranks.exchange, {});
  mode->attach(replica);
  const auto here = [&] {
    return std::ranges::count_if(replica.parameters, [](const torch::Tensor& one) {
      return one.dim() == 2 && one.storage().data() != nullptr;
    });
  };
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
    CHECK(here() == 0);
    ranks.exchange.log().begin_iteration(iteration);
    mode->before_forward(true);
    const Gate gate = mode->gate();
    replica.network->set_gate([&](const torch::nn::Module& layer) {
      gate(layer);
      CHECK(here() <= 2);
    });
    const torch::Tensor outputs = replica.network->forward(torch::ones({2, 3, 32, 32}));
    replica.network->set_gate({});
    mode->before_backward(outputs, true);
    CHECK(here() == 2);
    outputs.sum().backward();
    mode->synchronize();
  }
  const auto traffic = ranks.exchange.log().traffic();
  const std::int64_t bytes = 4 * replica.parameter_count();
  // The last two layers, of seven, are gathered once for both passes.
  CHECK(traffic[static_cast<std::size_t>(Traffic::kParameters)] > 0);
  CHECK(traffic[static_cast<std::size_t>(Traffic::kGradients)] >=
        bytes * (ranks.size - 1) / ranks.size);
}

TEST_CASE("fsdp: large vectors are layers of their own" * test::several_ranks()) {
  Ranks ranks;
  Replica replica =
      make_replica("synthetic:parameters=400k,compute=1ms,tensors=4", 1, Layout::kNchw);
  const auto mode = make_sync_mode("fsdp", ranks.exchange, {});
  mode->attach(replica);
  CHECK(mode->stepped(replica).parameters.size() == 4);
}

TEST_CASE("each parameter of a network is in one of its layers, and each layer in a block" *
          test::once()) {
  struct Sizes {
    std::string model;
    std::size_t layers, blocks;
  };
  for (const Sizes& one : std::vector<Sizes>{{"lenet", 5, 5},
                                             {"vgg11", 17, 17},
                                             {"resnet18", 41, 11},
                                             {"resnet50", 107, 19},
                                             {"mlp:8x3", 4, 4},
                                             {"vit-b16", 77, 17}}) {
    const std::string& model = one.model;
    CAPTURE(model);
    const Replica replica = make_replica(model, 1, Layout::kNchw);
    std::vector<int> times(replica.parameters.size(), 0);
    std::set<const torch::nn::Module*> of_blocks;
    const auto all = replica.network->layers();
    for (const Network::Layer& layer : all) {
      of_blocks.insert(layer.block);
      for (const std::size_t parameter : replica.parameters_of(*layer.module))
        ++times[parameter];
    }
    CHECK(all.size() == one.layers);
    CHECK(of_blocks.size() == one.blocks);
    CHECK(std::ranges::count(times, 1) == static_cast<std::ptrdiff_t>(times.size()));
    std::set<const torch::nn::Module*> called, known;
    for (const Network::Layer& layer : all)
      known.insert(layer.module);
    replica.network->set_gate([&](const torch::nn::Module& layer) { called.insert(&layer); });
    TrainOptions options;
    options.model = model;
    const std::vector<std::int64_t> sizes = network_input(options).sizes;
    std::vector<std::int64_t> shape = {2};
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    const torch::NoGradGuard no_grad;
    replica.network->forward(torch::ones(shape));
    CHECK(called == known);
  }
}

TEST_CASE("gradients that overflow or are not numbers end the run, in these modes too") {
  const test::SmallSet set;
  for (const char* mode : {"powersgd", "top-k", "local-sgd", "zero1", "fsdp"}) {
    CAPTURE(mode);
    Ranks ranks;
    const int last = ranks.size - 1;
    const test::Trained made = test::train_shortly(
        ranks.exchange, {*set.data, nullptr, torch::kCPU}, test::short_options(mode), 2,
        torch::kCPU, [&](GradientGuard& guard, std::int64_t iteration) {
          if (iteration == 1 && ranks.rank == last) guard.poison_next();
        });
    for (std::size_t i = 0; i < 2; ++i)
      CHECK((made.iterations[i].bad_tensor >= 0) == (i == 1 && ranks.rank == last));
  }
}

TEST_CASE("powersgd, top-k, local-sgd: passes of an iteration are added up before it is sent") {
  const test::SmallSet set;
  const auto made = [&](TrainOptions options) {
    options.accumulate = 2;
    return trained(set, options).parameters;
  };
  const torch::Tensor reference = made(test::short_options("allreduce"));
  // Where nothing is left out they train as allreduce does.
  TrainOptions top = test::short_options("top-k"), low = test::short_options("powersgd"),
               local = test::short_options("local-sgd");
  top.top_k_percent = 100;
  low.powersgd_rank = 1000;
  local.local_steps = 1;
  for (const TrainOptions& options : {top, low, local}) {
    CAPTURE(options.sync);
    CHECK(distance(made(options), reference) < 1e-5);
  }
}

TEST_CASE("powersgd, top-k, local-sgd: --clip-norm limits what a rank steps by") {
  const test::SmallSet set;
  const torch::Tensor start = flat_parameters(make_replica("lenet", 1, Layout::kNhwc)).clone();
  for (const char* mode : {"powersgd", "top-k", "local-sgd"}) {
    CAPTURE(mode);
    TrainOptions options = test::short_options(mode);
    options.optimizer.momentum = options.optimizer.weight_decay = 0;
    options.clip_norm = 0.05;  // every step is over it
    Ranks ranks;
    const test::Trained made =
        test::train_shortly(ranks.exchange, {*set.data, nullptr, torch::kCPU}, options, 1);
    const double limit = 0.05 * made.iterations[0].row.learning_rate,
                 moved = (made.parameters - start).norm().item<double>();
    // The mean of steps in other directions is shorter than each.
    const bool of_its_own = !mode_named(mode).local || ranks.size == 1;
    CHECK(moved > (of_its_own ? 0.999 : 0.5) * limit);
    CHECK(moved < 1.001 * limit);
  }
}

TEST_CASE("modes that send less, and sharded ones, train alike over every transport" *
          test::several_ranks()) {
  const test::SmallSet set;
  for (const Mode& mode : kModes) {
    if (mode.changes.empty() && !mode.sharded) continue;
    for (const char* wire : {"fp32", "bf16"}) {
      if (!mode.casts && wire == std::string("bf16")) continue;
      TrainOptions options = test::short_options(std::string(mode.name));
      options.wire_dtype = wire;
      options.local_steps = 3;
      const torch::Tensor start =
          flat_parameters(make_replica("lenet", options.seed, Layout::kNhwc)).clone();
      const torch::Tensor reference = trained(set, options).parameters;
      // Sums in another order, or roundings of another number, of the way of the parameters.
      const double limit =
          (wire == std::string("fp32") ? 1e-4 : std::ldexp(8.0 * test::session().size(), -8)) *
          (reference - start).norm().item<double>();
      for (const char* transport : {"shm", "tcp-ring", "two-level", "two-level-unequal"}) {
        CAPTURE(mode.name);
        CAPTURE(wire);
        CAPTURE(transport);
        const test::Trained made = trained(set, options, transport);
        CHECK((made.parameters - reference).norm().item<double>() < limit);
        CHECK(test::session().equal(std::stoull(made.hash, nullptr, 16)));
      }
    }
  }
}

TEST_CASE("fsdp: units of several layers train as ddp does" * test::at_most_two_ranks()) {
  const test::SmallSet set;
  TrainOptions options = test::short_options("ddp");
  options.model = "resnet18";
  options.batch_per_rank = 2;
  const auto made = [&] {
    Ranks ranks;
    return test::train_shortly(ranks.exchange, {*set.data, nullptr, torch::kCPU}, options, 3);
  };
  const torch::Tensor reference = made().parameters;
  for (const bool blocks : {true, false}) {
    CAPTURE(blocks);
    options.sync = "fsdp";
    options.fsdp_blocks = blocks;
    CHECK(distance(made().parameters, reference) < 1e-5);
  }
}

TEST_CASE("zero1, fsdp: an iteration that overflows in one part is left out by all ranks") {
  const test::SmallSet set;
  const auto overflown = [&](const char* mode) {
    TrainOptions options = test::short_options(mode);
    options.optimizer.scales_loss = true;
    Ranks ranks;
    return test::train_shortly(ranks.exchange, {*set.data, nullptr, torch::kCPU}, options, kTrained,
                               torch::kCPU, [&](GradientGuard& guard, std::int64_t iteration) {
                                 if (iteration == 3 && ranks.rank == 0) guard.poison_next();
                               });
  };
  const test::Trained reference = overflown("ddp");
  for (const char* mode : {"zero1", "fsdp"}) {
    CAPTURE(mode);
    const test::Trained made = overflown(mode);
    CHECK(distance(made.parameters, reference.parameters) < 1e-5);
    CHECK(test::session().equal(std::stoull(made.hash, nullptr, 16)));
  }
}

TEST_CASE("powersgd, top-k, local-sgd, zero1 and fsdp on several ranks" * test::many_ranks()) {
  check_powersgd();
  check_top_k();
  check_outer("lenet", 1);
  check_zero1();
  check_fsdp();
}

TEST_CASE("powersgd, top-k, local-sgd, zero1 and fsdp on one rank" * test::once()) {
  check_powersgd();
  check_top_k();
  check_outer("lenet", 1);
  check_zero1();
  check_fsdp();
}
