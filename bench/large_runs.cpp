// SPDX-License-Identifier: BSD-3-Clause
// Writes run files of any size without training, to measure the report with:
//   make build/bench/large_runs
//   build/bench/large_runs FOLDER RANKS ITERATIONS [BUCKETS [FILES [EPOCH_ITERATIONS]]]
//   /usr/bin/time -v build/bin/gradsync-report FOLDER
// All tables and the verdict, on one core of an AMD EPYC with the file in memory:
//   4096 x 10000 1 (7.6 GB)         14.6 s CPU, 431 MB
//   64 x 100000 1 (1.2 GB)           2.4 s CPU, 108 MB
//   4 x 100 2, 500 files             4.7 s CPU, 652 MB

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "record/reader.h"

namespace {

using namespace gradsync;

struct Shape {
  std::size_t ranks = 0, iterations = 0, buckets = 1, files = 1, epoch_iterations = 100;
};

constexpr const char* kModes[] = {"none", "gather-scatter", "allreduce", "ddp"};

/// Repeatable noise from 0 to 1, without a state that would have to be carried along.
double noise(std::uint64_t key) {
  key = (key ^ (key >> 31)) * 0x9E3779B97F4A7C15U;
  key = (key ^ (key >> 27)) * 0xBF58476D1CE4E5B9U;
  return static_cast<double>((key ^ (key >> 31)) >> 12) * 0x1p-52;
}

RunInfo make_info(const Shape& shape, std::size_t file) {
  const char* mode = kModes[file % std::size(kModes)];
  RunInfo info;
  info.run_id = fmt::format("00000000-0000-4000-8000-{:012d}", file);
  info.created = "2026-01-02T03:04:05Z";
  info.command_line = "bench/large_runs";
  info.config = {
      {"sync", mode, "command line"},
      {"model", "lenet", "command line"},
      {"batch-per-rank", fmt::to_string(32U << (file / std::size(kModes) % 4)), "command line"}};
  info.provenance = {{"program", "bench/large_runs"}};
  for (std::size_t r = 0; r < shape.ranks; ++r) {
    RankPlace& place = info.topology.emplace_back();
    place.rank = static_cast<std::int32_t>(r);
    place.local_rank = static_cast<std::int32_t>(r % 4);
    place.host = fmt::format("node{:04}", r / 4);
    place.device = "cpu: none";
    place.affinity = "0-1";
    place.threads = 1;
    place.clock_offset_s = 0;
    place.clock_uncertainty_s = 1e-7;
  }
  return info;
}

/// A run whose rows are made when they are asked for.
class MadeUpRun : public RunReader {
 public:
  MadeUpRun(const Shape& shape, std::size_t file) : shape_(shape), file_(file) {
    info_ = make_info(shape, file);
    end_ = {RunStatus::kComplete, info_.created};
    for (std::size_t i = 0; i < shape.iterations; ++i) {
      const auto number = static_cast<std::int64_t>(i);
      const auto epoch = static_cast<std::int64_t>(shape.epoch_iterations);
      index_.iteration.push_back(number);
      index_.epoch.push_back(number / epoch);
      index_.step.push_back(number % epoch);
      index_.samples.push_back(32 * static_cast<std::int64_t>(shape.ranks));
      index_.learning_rate.push_back(0.1);
      index_.warmup.push_back(i < 2);
    }
    index_.buckets = shape.buckets;
    for (std::size_t e = 0; e < shape.iterations / shape.epoch_iterations; ++e)
      lists_.epochs.push_back(make_epoch(e));
  }

  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override {
    require_rows(first, count);
    std::vector<IterationRow> result;
    for (std::size_t i = first; i < first + count; ++i)
      result.push_back(make_row(i));
    return result;
  }

 private:
  EpochRow make_epoch(std::size_t epoch) const {
    EpochRow row;
    row.epoch = static_cast<std::int64_t>(epoch);
    row.iterations = static_cast<std::int64_t>(shape_.epoch_iterations);
    row.order_digest = fmt::format("{:016x}", epoch);
    RankEpoch rank;
    rank.train_loss = 2.3 / static_cast<double>(1 + epoch);
    rank.train_accuracy = 0.5;
    rank.test_accuracy = 0.5;
    rank.training_time_s = 0.01 * static_cast<double>(shape_.epoch_iterations);
    rank.running_time_s = 0.011 * static_cast<double>(shape_.epoch_iterations);
    row.ranks.assign(shape_.ranks, rank);
    return row;
  }

  IterationRow make_row(std::size_t i) const {
    IterationRow row;
    row.iteration = index_.iteration[i];
    row.epoch = index_.epoch[i];
    row.step = index_.step[i];
    row.learning_rate = index_.learning_rate[i];
    row.samples = index_.samples[i];
    row.warmup = index_.warmup[i];
    row.buckets.assign(shape_.buckets, {1 << 20, CollectiveKind::kAllReduce});
    for (std::size_t r = 0; r < shape_.ranks; ++r)
      row.ranks.push_back(make_rank(i, r));
    return row;
  }

  /// The slowest rank ends the iteration of all: a slow start, then 10 ms and noise.
  RankIteration make_rank(std::size_t i, std::size_t r) const {
    const double own = noise((file_ << 48) ^ (i * shape_.ranks + r));
    RankIteration rank;
    rank.begin_s = 0.02 * static_cast<double>(i);
    rank[Phase::kIteration] = (i < 20 ? 0.015 : 0.010) + 0.001 * noise((file_ << 48) ^ ~i);
    rank[Phase::kData] = 0.0002;
    rank[Phase::kForward] = 0.002 + 0.0005 * own;
    rank[Phase::kBackward] = 0.004;
    rank[Phase::kOptimizer] = 0.0005;
    rank[Phase::kCompute] = 0.0065 + 0.0005 * own;
    rank[Phase::kCommBusy] = 0.003 - 0.0005 * own;
    rank[Phase::kHidden] = 0.001;
    rank[Phase::kExposed] = 0.002 - 0.0005 * own;
    rank[Phase::kWait] = 0.0005 * (1 - own);
    rank[Phase::kOther] = rank[Phase::kIteration] - rank[Phase::kCompute] - rank[Phase::kExposed];
    rank.loss = 2.3 / (1 + 0.01 * static_cast<double>(i)) + 0.1 * own;
    rank.correct = static_cast<std::int64_t>(8 * own);
    rank.traffic_bytes = {2 << 20, 0, 512, 0, 24, 64};
    for (std::size_t b = 0; b < shape_.buckets; ++b) {
      const double ready_s = 0.004 + 0.0005 * own + 0.0003 * static_cast<double>(b);
      rank.buckets.push_back({ready_s, ready_s, 0.006 + 0.0003 * static_cast<double>(b)});
    }
    return rank;
  }

  Shape shape_;
  std::size_t file_;
};

std::size_t count_at(int argc, char** argv, int position, std::size_t otherwise) {
  if (position >= argc) return otherwise;
  const std::int64_t count = parse_integer(argv[position]);
  if (count < 1) throw Error(ExitCode::kUsage, fmt::format("'{}' is below 1", argv[position]));
  return static_cast<std::size_t>(count);
}

int make_runs(int argc, char** argv) {
  if (argc < 4)
    throw Error(ExitCode::kUsage, "a folder, ranks and iterations are needed",
                "build/bench/large_runs /tmp/runs 4096 10000 [BUCKETS [FILES [EPOCH_ITERATIONS]]]");
  const std::filesystem::path folder = argv[1];
  Shape shape;
  shape.ranks = count_at(argc, argv, 2, 1);
  shape.iterations = count_at(argc, argv, 3, 1);
  shape.buckets = count_at(argc, argv, 4, shape.buckets);
  shape.files = count_at(argc, argv, 5, shape.files);
  shape.epoch_iterations = count_at(argc, argv, 6, shape.epoch_iterations);
  std::filesystem::create_directories(folder);
  for (std::size_t file = 0; file < shape.files; ++file) {
    MadeUpRun run(shape, file);
    const auto path = folder / fmt::format("run-{}x{}-{}.h5", shape.ranks, shape.iterations, file);
    write_hdf5(run, path);
    if (shape.files < 10) std::cout << path.string() << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return gradsync::run_program("large_runs", [&] { return make_runs(argc, argv); });
}
