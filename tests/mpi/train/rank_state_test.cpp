// SPDX-License-Identifier: BSD-3-Clause
#include "train/rank_state.h"

#include <cstring>

#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>

#include "mpi/ranks.h"
#include "train/iteration.h"

using namespace gradsync;
using gradsync::test::Ranks;

namespace {

/// All that a rank carries, filled with numbers of its own.
struct Parts {
  explicit Parts(Ranks& ranks, const char* mode_name = "none", const std::string& model = "lenet")
      : replica(make_replica(model, 3, Layout::kNhwc)),
        optimizer(make_optimizer(replica, {})),
        mode(make_sync_mode(mode_name, ranks.exchange, {})) {
    mode->attach(replica);
  }
  RankState state() {
    return {replica, *optimizer, *mode, run_summary, epoch_summary, epoch_clock, buckets};
  }
  void fill(float value) {
    const torch::NoGradGuard no_grad;
    replica.parameters[0].fill_(value);
    optimizer->moment(0, 1).fill_(value + 1);
    RankIteration measured;
    measured.time_s.fill(0.5 * value);
    measured.loss = value;
    run_summary.add(measured, 4, false);
    epoch_clock.training_s = value;
    buckets = {{64, CollectiveKind::kAllReduce}};
  }

  Replica replica;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<SyncMode> mode;
  RankSummary run_summary, epoch_summary;
  EpochClock epoch_clock;
  std::vector<BucketShape> buckets;
};

/// Bit for bit: what was not measured is NaN. The clock continues.
bool same_values(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].values.nbytes() != b[i].values.nbytes()) return false;
    const int order =
        std::memcmp(a[i].values.data_ptr(), b[i].values.data_ptr(), a[i].values.nbytes());
    if (a[i].name != "trainer/epoch_clock" && order != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("checkpoint: every rank gets back what it had, equal tensors are stored once" *
          test::several_ranks()) {
  Ranks ranks;
  const test::SharedFolder folder;
  const auto path = folder.path() / "c.safetensors";
  Parts before(ranks);
  before.fill(static_cast<float>(1 + ranks.rank));
  const auto saved = snapshot(before.state());
  CheckpointInfo info;
  info.run_id = "run";
  write_checkpoint(ranks.exchange, saved, info, path, /*root_only=*/false);
  std::optional<CheckpointFile> file;
  if (ranks.rank == 0) {
    file.emplace(path);
    const std::string last = "rank" + std::to_string(ranks.size - 1) + "/";
    CHECK((file->find(last + saved[0].name) != nullptr) == (ranks.size > 1));
    CHECK(file->find(last + saved[1].name) == nullptr);
    CHECK(from_metadata(file->metadata()).run_id == "run");
  }
  Parts after(ranks);
  const auto read = read_checkpoint(ranks.exchange, file ? &*file : nullptr);
  restore(after.state(), read);
  CHECK(same_values(snapshot(after.state()), saved));
  CHECK(after.epoch_clock.training_s == 1 + ranks.rank);
  CHECK(after.run_summary.mean_loss() == 1 + ranks.rank);
}

namespace {

constexpr torch::ScalarType kTypes[] = {torch::kFloat32, torch::kBool,  torch::kUInt8, torch::kInt8,
                                        torch::kInt16,   torch::kInt32, torch::kInt64};

/// A file of a TorchScript module with a buffer of each type: dense, repeated and with gaps.
std::string module_with_buffers(const test::SharedFolder& folder) {
  const std::string path = (folder.path() / "net.pt").string();
  if (test::session().root()) {
    torch::jit::Module module("Net");
    module.register_parameter("weight", torch::ones({3}, torch::requires_grad()), false);
    for (const torch::ScalarType type : kTypes) {
      const std::string name = c10::toString(type);
      module.register_buffer("dense" + name, torch::zeros({3, 5}, type).t());
      module.register_buffer("repeated" + name, torch::zeros({1}, type).expand({1000}));
      module.register_buffer("gaps" + name, torch::zeros({7, 3}, type).select(1, 1));
    }
    module.register_attribute("plain", c10::TensorType::get(), torch::zeros({2}));
    module.define("def forward(self, x):\n  return x * self.weight\n");
    module.save(path);
  }
  MPI_Barrier(test::session().world());
  return path;
}

}  // namespace

TEST_CASE("checkpoint: buffers of every type and layout come back, and can be broadcast") {
  Ranks ranks;
  const test::SharedFolder folder;
  const std::string model = module_with_buffers(folder);
  const auto path = folder.path() / "c.safetensors";
  Parts before(ranks, "none", model);
  REQUIRE(before.replica.buffers.size() == 3 * std::size(kTypes) + 1);
  for (torch::Tensor& buffer : before.replica.buffers)
    buffer.fill_(1 + ranks.rank % 2).select(0, 0).zero_();
  const auto saved = snapshot(before.state());
  write_checkpoint(ranks.exchange, saved, {}, path, /*root_only=*/false);
  std::optional<CheckpointFile> file;
  if (ranks.rank == 0) file.emplace(path);
  Parts after(ranks, "none", model);
  restore(after.state(), read_checkpoint(ranks.exchange, file ? &*file : nullptr));
  CHECK(same_values(snapshot(after.state()), saved));
  broadcast_buffers(ranks.exchange, after.replica);
  for (std::size_t i = 0; i < after.replica.buffers.size(); ++i) {
    const torch::Tensor& buffer = after.replica.buffers[i];
    CAPTURE(after.replica.buffer_names[i]);
    const double expected = buffer.is_floating_point() ? 1 : 1 + ranks.rank % 2;
    CHECK(buffer.select(0, 0).to(torch::kFloat64).abs().max().item<double>() == 0);
    CHECK(buffer.select(0, 1).to(torch::kFloat64).min().item<double>() ==
          (buffer.scalar_type() == torch::kBool ? 1 : expected));
  }
}

TEST_CASE("checkpoint: with root_only the others take the network of rank 0, not its numbers" *
          test::several_ranks()) {
  Ranks ranks;
  const test::SharedFolder folder;
  const auto path = folder.path() / "c.safetensors";
  Parts parts(ranks);
  parts.fill(static_cast<float>(1 + ranks.rank));
  write_checkpoint(ranks.exchange, snapshot(parts.state()), {}, path, /*root_only=*/true);
  std::optional<CheckpointFile> file;
  if (ranks.rank == 0) file.emplace(path);
  restore(parts.state(), read_checkpoint(ranks.exchange, file ? &*file : nullptr));
  CHECK(parts.epoch_clock.training_s == 1 + ranks.rank);
  CHECK(parts.replica.parameters[0].detach().min().item<float>() == 1);
  CHECK(parts.optimizer->moment(0, 1).max().item<float>() == 2);
}

TEST_CASE("checkpoint: a state of another network or with a wrong order is refused") {
  Ranks ranks;
  Parts parts(ranks, "ddp");
  auto saved = snapshot(parts.state());
  const auto refused = [&] {
    try {
      restore(parts.state(), saved);
    } catch (const Error& error) {
      return error.code() == ExitCode::kBadData;
    }
    return false;
  };
  CHECK_FALSE(refused());
  const auto good = saved;
  saved.push_back({"mode", torch::tensor({0, 1, 2}, torch::kInt64)});
  CHECK(refused());
  saved = good;
  saved[0].values = torch::zeros({2, 2});
  CHECK(refused());
  saved = good;
  saved.erase(saved.begin());
  CHECK(refused());
  saved = good;
  saved.back().values = saved.back().values.to(torch::kInt64);
  CHECK(refused());
}
