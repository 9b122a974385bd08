// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <fstream>

#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/functional/loss.h>

#include "data/cifar10.h"
#include "model/network.h"
#include "mpi/ranks.h"
#include "mpi/short_training.h"
#include "optim/optimizer.h"
#include "options/options.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"
#include "train/advice.h"
#include "train/before_training.h"
#include "train/gradient_guard.h"
#include "train/iteration.h"
#include "train/pipeline.h"
#include "train/run_summary.h"

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
  CHECK(count("resnet50") == 25557032);
  CHECK(count("vit-b16") == 86567656);
  CHECK(count("gpt2-small") == 124439808);
  CHECK(count("mlp:100x2") == 3072 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10);
  CHECK(count("synthetic:parameters=1001,compute=1ms,tensors=10") == 1001);
}

TEST_CASE("a synthetic network takes its time and gives its gradients one by one" * test::once()) {
  constexpr std::size_t kTensors = 6;
  constexpr double kCompute_s = 0.09;
  Replica replica =
      make_replica("synthetic:parameters=100,compute=90ms,tensors=6", 1, Layout::kNhwc);
  REQUIRE(replica.parameters.size() == kTensors);
  std::vector<double> ready_s;
  const GradientHooks hooks(replica.parameters, [&](std::size_t parameter) {
    CHECK(parameter == kTensors - 1 - ready_s.size());
    ready_s.push_back(now_s());
  });
  const Stopwatch watch;
  const torch::Tensor outputs = replica.network->forward(torch::randn({4, 1, 1, 1}));
  CHECK(outputs.sizes() == torch::IntArrayRef({4, 10}));
  const double forward_s = watch.elapsed_s();
  CHECK(forward_s >= kCompute_s / 3);
  cross_entropy(outputs, torch::arange(4), 1, 1).loss.backward();
  CHECK(watch.elapsed_s() >= kCompute_s);
  REQUIRE(ready_s.size() == kTensors);
  // A loaded machine is late at any of them, never early at the last.
  CHECK(ready_s.front() - watch.begin_s() < ready_s.back() - watch.begin_s());
  CHECK(ready_s.back() - watch.begin_s() - forward_s >= kCompute_s * 2 / 3);
  for (const torch::Tensor& parameter : replica.parameters)
    CHECK(parameter.grad().abs().max().item<float>() > 0);
}

TEST_CASE("drawn samples depend on the seed and their index, tokens are followed by their labels" *
          test::once()) {
  TrainOptions options;
  options.model = "resnet50";
  const NetworkInput images = network_input(options);
  const SyntheticData data(images, 3, torch::kCPU);
  const FeedBatch one = data.batch({7, 8, 9}, Layout::kNchw);
  CHECK(one.images.sizes() == torch::IntArrayRef({3, 3, 224, 224}));
  const FeedBatch other = SyntheticData(images, 3, torch::kCPU).batch({9, 7}, Layout::kNhwc);
  CHECK(other.images.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(torch::equal(other.images[1], one.images[0]));
  CHECK(torch::equal(other.labels[0], one.labels[2]));
  CHECK(!torch::equal(one.images[0], one.images[1]));
  CHECK(!torch::equal(SyntheticData(images, 4, torch::kCPU).batch({7}, Layout::kNchw).images[0],
                      one.images[0]));
  CHECK(data.batch({}, Layout::kNhwc).images.sizes() == torch::IntArrayRef({0, 3, 224, 224}));
  options.model = "gpt2-small";
  options.sequence_length = 5;
  const FeedBatch tokens =
      SyntheticData(network_input(options), 3, torch::kCPU).batch({1, 2}, Layout::kNhwc);
  CHECK(tokens.images.sizes() == torch::IntArrayRef({2, 5}));
  CHECK(
      torch::equal(tokens.images.narrow(1, 1, 4).to(torch::kInt64), tokens.labels.narrow(1, 0, 4)));
  CHECK(tokens.labels.max().item<std::int64_t>() < 50257);
  CHECK(tokens.labels.min().item<std::int64_t>() >= 0);
}

TEST_CASE("the loss of tokens is the mean over all, their answer the last one" * test::once()) {
  const torch::Tensor logits = torch::randn({2, 3, 5}), labels = torch::randint(5, {2, 3});
  const PassLoss loss = cross_entropy(logits, labels, 1, 1);
  const torch::Tensor flat =
      torch::nn::functional::cross_entropy(logits.view({6, 5}), labels.view({6}));
  CHECK(std::abs(loss.loss.item<double>() - flat.item<double>()) <= 1e-6);
  CHECK(std::abs(loss.sums[0][0].item<double>() - 2 * flat.item<double>()) <= 1e-6);
  const torch::Tensor right = logits.argmax(2).eq(labels).select(1, 2).sum();
  CHECK(loss.sums[0][1].item<double>() == static_cast<double>(right.item<std::int64_t>()));
}

namespace {

/// A file of a module with two weights and this forward pass.
std::string script(const test::SharedFolder& folder, const std::string& body,
                   torch::ScalarType type = torch::kFloat32) {
  torch::jit::Module module("Net");
  const auto options = torch::dtype(type).requires_grad(true);
  if (body.find("weight") != std::string::npos)
    module.register_parameter("weight", torch::ones({3, 8}, options), false);
  module.register_parameter("scale", torch::full({8}, 0.5, options), false);
  module.define("def forward(self, x):\n  x = x.flatten(1)\n  return " + body + "\n");
  const std::string path = (folder.path() / "net.pt").string();
  module.save(path);
  return path;
}

std::string refusal_of(const std::string& path) {
  try {
    require_trainable_script(path, {{2, 2, 2}, 3, false}, Layout::kNchw, {2});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("TorchScript modules that cannot be trained are refused with the reason" * test::once()) {
  const test::SharedFolder folder;
  const auto reason = [&](const std::string& body) { return refusal_of(script(folder, body)); };
  CHECK(reason("torch.matmul(x * self.scale, self.weight.t())").empty());
  CHECK(holds(refusal_of("absent.pt"), "there is no such file"));
  CHECK(holds(reason("torch.matmul(x, self.weight.t())"), "parameter scale is unused"));
  CHECK(holds(reason("torch.matmul(x * self.scale, self.weight.t()).detach()"),
              "not differentiable"));
  CHECK(holds(reason("torch.matmul((x * self.scale)[:, 1:], self.weight.t())"),
              "rejects 2 samples of 2 x 2 x 2"));
  CHECK(holds(reason("x * self.scale"), "Float of the sizes [2, 8], not 3 logits"));
  CHECK(holds(reason("torch.matmul(x * self.scale, torch.embedding(self.weight, torch.arange(3), "
                     "-1, False, True).t())"),
              "gradient of its parameter weight is sparse"));
  CHECK(holds(
      refusal_of(script(folder, "torch.matmul(x * self.scale, self.weight.t())", torch::kFloat64)),
      "weight is Double"));
  torch::jit::Module empty("Empty");
  empty.define("def forward(self, x):\n  return x.flatten(1)\n");
  empty.save((folder.path() / "empty.pt").string());
  CHECK(holds(refusal_of((folder.path() / "empty.pt").string()), "has no parameters"));
  std::ofstream(folder.path() / "text.pt") << "no archive";
  CHECK(holds(refusal_of((folder.path() / "text.pt").string()), "holds no TorchScript module"));
}

namespace {

/// Why a module is refused that has these tensors, as buffers or parameters, and these lines as its
/// forward pass; nothing if it is not.
std::string refusal_of(const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                       const std::string& lines, const std::set<std::int64_t>& batches = {2}) {
  const test::SharedFolder folder;
  const std::string path = (folder.path() / "net.pt").string();
  torch::jit::Module module("Net");
  for (const auto& [name, tensor] : tensors)
    if (tensor.requires_grad())
      module.register_parameter(name, tensor, false);
    else
      module.register_buffer(name, tensor);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_attribute("calls", c10::IntType::get(), 0);
  module.register_attribute("history", c10::ListType::ofTensors(),
                            c10::List<torch::Tensor>({torch::zeros({1})}));
  module.define("def forward(self, x):\n" + lines);
  module.save(path);
  try {
    require_trainable_script(path, {{2, 2, 2}, 3, false}, Layout::kNchw, batches);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadData);
    CHECK(!error.fix().empty());
    return error.what();
  }
  return {};
}

torch::Tensor parameter(std::int64_t rows) {
  return torch::ones({rows, 8}, torch::requires_grad());
}

constexpr const char* kLogits = "  return torch.matmul(x.flatten(1), self.weight.t())\n";

}  // namespace

TEST_CASE("TorchScript modules that open files are refused, wherever they do, and do not run" *
          test::once()) {
  const test::SharedFolder folder;
  const std::string victim = (folder.path() / "victim").string();
  std::ofstream(victim) << "precious";
  // Used, or it would be left out.
  const std::string overwrites =
      "  x = x + torch.from_file('" + victim + "', True, 8, dtype=0).fill_(88).sum() * 0.0\n";
  const auto require_refused = [&](const torch::jit::Module& module) {
    const std::string path = (folder.path() / "net.pt").string();
    module.save(path);
    const std::string why = refusal_of(path);
    std::string content;
    std::getline(std::ifstream(victim), content);
    CHECK(content == "precious");
    CHECK_MESSAGE(holds(why, "it uses aten::from_file: it opens files"), why);
  };
  torch::jit::Module module("Net");
  module.register_parameter("weight", parameter(3), false);
  module.define("def forward(self, x):\n" + overwrites + kLogits);
  require_refused(module);
  torch::jit::Module part("Part"), whole("Whole");
  part.define("def unused(self, x):\n" + overwrites + "  return x\n");
  whole.register_parameter("weight", parameter(3), false);
  whole.register_module("part", part);
  whole.define(std::string("def forward(self, x):\n") + kLogits);
  require_refused(whole);
}

TEST_CASE("TorchScript modules: tensors that no list holds are refused by name" * test::once()) {
  const auto with = [](const torch::Tensor& held, const std::string& lines = kLogits) {
    return refusal_of({{"weight", parameter(3)}, {"held", held}}, lines);
  };
  for (const auto type : {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32})
    CHECK(with(torch::ones({8}, type)).empty());
  CHECK(holds(with(torch::ones({8}, torch::kHalf)), "held is Half"));
  CHECK(holds(with(torch::ones({8}, torch::kBFloat16)), "held is BFloat16"));
  CHECK(holds(with(torch::ones({8}, torch::kComplexFloat)), "held is ComplexFloat"));
  CHECK(holds(with(torch::ones({8}).to_sparse()), "held is sparse"));
  const torch::Tensor weight = parameter(3);
  CHECK(holds(refusal_of({{"weight", weight}, {"held", weight.detach()[0]}}, kLogits),
              "are parts of one tensor"));
  const torch::Tensor two = torch::ones({8, 2});
  CHECK(holds(
      refusal_of({{"weight", weight}, {"a", two.select(1, 0)}, {"b", two.select(1, 1)}}, kLogits),
      "its a and b are parts of one tensor"));
  CHECK(with(two, std::string("  self.held = self.held + x.mean()\n") + kLogits).empty());
  CHECK(holds(with(two, std::string("  self.held = self.held[:1]\n") + kLogits),
              "gives held another shape"));
  CHECK(holds(with(two, std::string("  self.calls += 1\n") + kLogits),
              "assigns the attribute calls"));
  CHECK(holds(with(two, std::string("  self.weight = self.weight + 1\n") + kLogits),
              "assigns the parameter weight"));
  for (const char* change : {"self.history.append(x)", "self.history[0].add_(1)",
                             "self.history[0][0:1].view([1]).mul_(2)"}) {
    CAPTURE(change);
    CHECK(
        holds(with(two, "  " + std::string(change) + "\n" + kLogits), "changes the list history"));
  }
  CHECK(with(two, std::string("  self.held.add_(1)\n  x = x * self.history[0].mean() + "
                              "float(len(self.history))\n") +
                      kLogits)
            .empty());
  CHECK(with(two, std::string("  own = self.history.copy()\n  own.append(x)\n") + kLogits).empty());
}

TEST_CASE("TorchScript modules: branches that values choose are judged whatever is drawn" *
          test::once()) {
  const auto with = [](const std::string& lines) {
    return refusal_of({{"weight", parameter(3)}, {"extra", parameter(8)}},
                      "  x = x.flatten(1)\n" + lines + kLogits);
  };
  const std::string used = "x = x + torch.matmul(x, self.extra)\n";
  const std::string chosen = "its parameter extra is used only in a branch that values of tensors";
  CHECK(with("  " + used).empty());
  for (const char* condition :
       {"bool(torch.rand([1]) < 0.5)", "not self.training or bool(torch.rand([1]) < 0.5)",
        "float(x[0, 0]) <= 0.0", "x.nonzero().size(0) > 3",
        "int(torch.randint(9, [1])) in [1, 2]"}) {
    CAPTURE(condition);
    CHECK(holds(with("  if " + std::string(condition) + ":\n    " + used), chosen));
  }
  CHECK(holds(with("  for i in range(int(torch.randint(3, [1]))):\n    " + used), chosen));
  CHECK(holds(with("  while bool(x.sum() < 0):\n    " + used), chosen));
  CHECK(
      holds(with("  if bool(x.sum() < 0):\n    return torch.matmul(x, self.weight.t())\n  " + used),
            chosen));
  for (const char* condition : {"self.training", "x.dim() == 2", "x.size(1) == 8",
                                "x.is_floating_point()", "len(self.history) == 1"}) {
    CAPTURE(condition);
    CHECK(with("  if " + std::string(condition) + ":\n    " + used).empty());
  }
  CHECK(with("  for i in range(x.size(1)):\n    " + used).empty());
  CHECK(with("  if bool(x.sum() > 0):\n    " + used + "  else:\n    x = x - self.extra.sum()\n")
            .empty());
  CHECK(holds(with("  if not self.training:\n    " + used), "parameter extra is unused"));
}

TEST_CASE("TorchScript modules: one of a single batch size is tried with those of the run" *
          test::once()) {
  const auto with = [](const std::set<std::int64_t>& batches) {
    return refusal_of({{"weight", parameter(3)}},
                      "  x = x.view([4, 2, 2, 2])\n" + std::string(kLogits), batches);
  };
  CHECK(with({4}).empty());
  CHECK(holds(with({8}), "rejects 8 samples of 2 x 2 x 2"));
  CHECK(holds(with({3, 4}), "rejects 3 samples of 2 x 2 x 2"));
}

TEST_CASE("every mode passes --verify-modes on every kind of network and input") {
  const test::SharedFolder folder;
  if (test::session().root())
    script(folder,
           "torch.matmul(torch.relu(x * self.scale), self.weight.t()) + "
           "torch.matmul(x, self.weight.t())");
  MPI_Barrier(test::session().world());
  Ranks ranks;
  TrainOptions options;
  options.input = "2x2x2";
  options.classes = 3;
  options.batch_per_rank = 4;
  options.first_bucket_bytes = 512;
  options.bucket_cap_bytes = 4096;
  for (const std::string& model : {std::string("synthetic:parameters=5k,compute=2ms,tensors=9"),
                                   (folder.path() / "net.pt").string()})
    for (const Overlap overlap : {Overlap::kBackward, Overlap::kStep}) {
      CAPTURE(model);
      CAPTURE(static_cast<int>(overlap));
      options.model = model;
      options.overlap = overlap;
      const DataSource data = RunData(options).draw(torch::kCPU);
      for (const VerificationRow& row : verify_modes(ranks.exchange, data, options, {})) {
        CAPTURE(row.mode);
        CHECK(row.passed);
      }
    }
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

namespace {

const auto unrecorded = [](const IterationRow&) {};

}  // namespace

TEST_CASE("rows of all ranks arrive on rank 0") {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  FinishedIteration mine;
  mine.samples = 8;
  mine.measured.loss = 1.0 + ranks.rank;
  mine.measured[Phase::kIteration] = 0.5;
  mine.row.buckets = {{4, CollectiveKind::kAllReduce}};
  mine.measured[Phase::kWait] = 0.01 * ranks.rank;
  mine.measured.buckets = {{0.1, 0.2, 0.3, 0.25 + 0.001 * ranks.rank}};
  int recorded = 0;
  const Verdict verdict =
      gather_rows(ranks.exchange, mine, 0.25, [&](const IterationRow& complete) {
        CHECK(complete.ranks.size() == static_cast<std::size_t>(ranks.size));
        ++recorded;
      });
  CHECK(recorded == (ranks.rank == 0 ? 1 : 0));
  const IterationRow& row = mine.row;
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
  FinishedIteration mine;
  mine.measured.loss = 1;
  mine.bad_tensor = ranks.rank == last ? 3 : -1;
  Verdict verdict = gather_rows(ranks.exchange, mine, 0, unrecorded);
  CHECK(verdict.bad_rank == last);
  CHECK(verdict.bad_tensor == 3);
  mine.bad_tensor = -1;
  mine.measured.loss = ranks.rank == last ? std::nan("") : 1;
  verdict = gather_rows(ranks.exchange, mine, 0, unrecorded);
  CHECK(verdict.bad_rank == last);
  CHECK(verdict.bad_tensor == -1);
}

TEST_CASE(
    "fp16: a bad gradient is an overflow until rank 0, or the rank itself, has the lowest scale") {
  Ranks ranks;
  const int last = ranks.size - 1;
  const auto bad_rank = [&](bool root_may_fall, bool others_may_fall) {
    FinishedIteration mine;
    mine.measured.loss = 1;
    mine.bad_tensor = ranks.rank == last ? 3 : -1;
    mine.scale_may_fall = ranks.rank == 0 ? root_may_fall : others_may_fall;
    return gather_rows(ranks.exchange, mine, 0, unrecorded).bad_rank;
  };
  CHECK(bad_rank(true, true) == -1);
  CHECK(bad_rank(false, true) == last);  // data-parallel, whose root steps alone
  CHECK(bad_rank(true, false) == (last == 0 ? -1 : last));
}

TEST_CASE("one rank that requests a stop is enough, and the lowest is named") {
  Ranks ranks;
  const int last = ranks.size - 1;
  FinishedIteration mine;
  mine.measured.loss = 1;
  mine.stop = ranks.rank == last ? StopReason::kUsr1 : StopReason::kNone;
  Verdict verdict = gather_rows(ranks.exchange, mine, 0, unrecorded);
  CHECK(verdict.bad_rank == -1);
  CHECK(verdict.stop == StopReason::kUsr1);
  CHECK(verdict.stop_rank == last);
  verdict = agree_on_stop(ranks.exchange,
                          ranks.rank == last ? StopReason::kTimeLimit : StopReason::kTerm);
  CHECK(verdict.stop == (last == 0 ? StopReason::kTimeLimit : StopReason::kTerm));
  CHECK(verdict.stop_rank == 0);
  CHECK(agree_on_stop(ranks.exchange, StopReason::kNone).stop_rank == -1);
}

namespace {

/// A table of figures as RankSummary::gather() makes it; each of a rank is its time.
Table figures_of(std::size_t ranks, std::size_t hosts) {
  Table table{"ranks", "", {}, {{"rank", "rank"}, {"host", "host", true}}, {}};
  for (int figure = 0; figure < 11; ++figure)
    table.columns.push_back({"figure", "figure"});
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<Cell> row = {Cell::count(static_cast<double>(rank)),
                             "node" + std::to_string(rank % hosts)};
    row.resize(2 + 11, Cell::of(static_cast<double>(rank * 7 % ranks), 2));
    table.add(std::move(row));
  }
  return table;
}

}  // namespace

TEST_CASE("the closing table has at most eight rows whatever the number of ranks" * test::once()) {
  CHECK(closing_table(figures_of(8, 2)).rows.size() == 8);
  const Table sixteen = closing_table(figures_of(16, 2));
  REQUIRE(sixteen.rows.size() == 5);
  CHECK(sixteen.rows[0][0].text == "9 (slowest)");  // 9 * 7 % 16 == 15
  CHECK(sixteen.rows[0][6].number == 15);
  CHECK(sixteen.rows[2][0].text == "0 (fastest)");
  CHECK(sixteen.rows[3][0].text == "mean of 8 ranks");
  CHECK(sixteen.rows[3][1].text == "node0");
  CHECK(sixteen.rows[3][6].number == doctest::Approx(7));
  CHECK(sixteen.rows[4][6].number == doctest::Approx(8));
  CHECK(sixteen.notes.at(0).find("all 16 ranks on 2 hosts, by") == 0);
  const Table many = closing_table(figures_of(512, 64));
  CHECK(many.rows.size() == 8);
  CHECK(many.notes.at(0).find("all 512 ranks on 64 hosts, of which the 5 slowest") == 0);
}

TEST_CASE("faults for tests are read strictly" * test::once()) {
  const Fault fault = parse_fault("nan@1:5");
  CHECK(fault.due(1, 5));
  CHECK(!fault.due(0, 5));
  CHECK(!parse_fault("").due(0, 0));
  const Fault lasting = parse_fault("slow-loader@1:2.5");
  CHECK(lasting.slowdown(FaultKind::kSlowLoader, 1) == 2.5);
  CHECK(lasting.slowdown(FaultKind::kSlowLoader, 0) == 1);
  CHECK(lasting.slowdown(FaultKind::kSlow, 1) == 1);
  const Fault everywhere = parse_fault("slow@all:1.5");
  for (const int rank : {0, 1, 7})
    CHECK(everywhere.slowdown(FaultKind::kSlow, rank) == 1.5);
  for (const char* text :
       {"nan", "nan@1", "nan@all:1", "nan@x:1", "slow@-1:2", "nan@1:-2", "boom@1:1", "nan@1:5x",
        "slow@1:0.5", "slow@1:inf", "slow@1:nan", "nan@1:2.5"})
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
  const std::int64_t own = SmallSet::kImages / ranks.size;
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
    REQUIRE(whole.iterations.size() == 1);
    REQUIRE(parts.iterations.size() == 1);
    CHECK(parts.iterations[0].samples == own);
    CHECK(parts.iterations[0].measured.loss == doctest::Approx(whole.iterations[0].measured.loss));
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
  options.batch_per_rank = SmallSet::kImages / ranks.size / 5;
  options.accumulate = 3;
  const auto samples = [&] {
    std::vector<std::int64_t> all;
    for (const FinishedIteration& step : train_shortly(ranks.exchange, data, options, 9).iterations)
      all.push_back(step.samples * ranks.size);
    return all;
  };
  CHECK(samples() == std::vector<std::int64_t>{288, 192});
  options.last_batch = LastBatch::kDrop;
  CHECK(samples() == std::vector<std::int64_t>{288});
}

namespace {

constexpr std::int64_t kImages = 250, kEpochs = 3;

TrainOptions options_of(LastBatch last_batch) {
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

void check_feeds(const Cifar10& data, ImageType type, Layout layout, LastBatch last_batch,
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
  check_feeds(data, ImageType::kFloat32, Layout::kNhwc, LastBatch::kPad, FeedShare::kOwn);
  check_feeds(data, ImageType::kBfloat16, Layout::kNhwc, LastBatch::kDrop, FeedShare::kOwn);
  check_feeds(data, ImageType::kFloat16, Layout::kNchw, LastBatch::kPad, FeedShare::kOwn);
  // What a root scatters travels as float32.
  check_feeds(data, ImageType::kBfloat16, Layout::kNhwc, LastBatch::kPad, FeedShare::kAllRanks);
  check_feeds(data, ImageType::kBfloat16, Layout::kNhwc, LastBatch::kPad, FeedShare::kNone);
}

TEST_CASE("a resident feed's order keeps its place after a resume within an epoch") {
  SmallSet set;
  TrainOptions options = options_of(LastBatch::kPad);
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

namespace {

BlockTime block(double exposed_s, double rest_s) {
  BlockTime block;
  block.add(exposed_s + rest_s, rest_s, exposed_s, 0);
  return block;
}

struct Advised {
  std::vector<Advice> all;
  std::vector<std::string> tried;  ///< over these transports
};

/// Advice for an iteration of 100 ms over MPI, half of it exposed. In a trial over shared memory
/// hardly anything is, and compute is slower.
Advised advised(const std::string& mode, Overlap overlap = Overlap::kBackward,
                const std::string& wire_dtype = "fp32") {
  Ranks mpi("mpi"), shm("shm");
  TrainOptions plain;
  plain.model = "synthetic:parameters=400k,compute=4ms,tensors=8";
  plain.batch_per_rank = 4;
  plain.transport = "mpi";
  plain.wire_dtype = wire_dtype;
  TrainOptions fastest = plain;
  plain.transport = "shm";
  fastest.sync = mode;
  fastest.overlap = overlap;
  const DataSource data = RunData(plain).draw(torch::kCPU);
  Advised advised;
  advised.all = advise(
      {fastest, block(0.05, 0.05), plain}, data, {},
      [&](const std::string& transport) -> Exchange& {
        return transport == "mpi" ? mpi.exchange : shm.exchange;
      },
      [&](Exchange&, const TrainOptions& options) {
        CHECK(options.sync == "ddp");
        advised.tried.push_back(options.transport);
        return block(0.01, 0.29);
      });
  return advised;
}

}  // namespace

TEST_CASE("advice: another transport than the fastest contender's is predicted from a trial") {
  const Advised over = advised("ddp");
  CHECK(over.tried == std::vector<std::string>{"shm"});
  REQUIRE(over.all.size() >= 4);
  for (const Advice& one : over.all) {
    CAPTURE(one.contender);
    const bool by_trial = one.contender.find("transport=mpi") == std::string::npos;
    CHECK(one.ratio >= (by_trial ? 2.9 : 0.5));
    // Times of all-reduces alone are what they are on a busy machine: those of bf16 may be longer.
    if (one.contender.find("wire-dtype") == std::string::npos)
      CHECK(one.ratio <= (by_trial ? 3.1 : 1.01));
    // 6 % of the rest, a quarter of what is exposed.
    const double rest = by_trial ? 2.9 : 0.5;
    CHECK(one.high - one.ratio == doctest::Approx(0.06 * rest + 0.25 * (one.ratio - rest)));
    CHECK(one.ratio - one.low == doctest::Approx(one.high - one.ratio));
    CHECK(one.contender.find("overlap=step") == std::string::npos);
  }
}

TEST_CASE("advice: of contenders that exchange in fp16, other types are predicted") {
  const Advised over = advised("ddp", Overlap::kBackward, "fp16");
  REQUIRE(over.all.size() >= 4);
  for (const Advice& one : over.all)
    CHECK(one.contender.find("wire-dtype=fp16") == std::string::npos);
}

TEST_CASE("an evaluation leaves the log of the iteration before it as it is") {
  const SmallSet set;
  Ranks ranks;
  TrainOptions options = short_options("ddp");
  options.model = "resnet18";
  const ComputeSettings compute;
  RankTraining training(ranks.exchange, make_replica(options.model, options.seed, compute.layout),
                        *set.data, compute, options);
  const auto last = ranks.exchange.log().current();
  evaluate(training, *set.data, EvaluateHow::kShard);
  CHECK(last->records.empty());
}

TEST_CASE("advice: what the replay is not of is tried as ddp first") {
  CHECK(advised("allreduce").tried == std::vector<std::string>{"mpi", "shm"});
  CHECK(advised("ddp", Overlap::kStep).tried == std::vector<std::string>{"mpi", "shm"});
}
