// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "record/journal.h"
#include "record/recorder.h"
#include "run_folder.h"
#include "test_folder.h"

/// Runs made up for tests.
namespace gradsync::testing {

/// A file with this content, not synced: thousands of them are made.
inline void write_plainly(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);  // or the file system may flush what is replaced
  std::ofstream(path, std::ios::binary) << content;
}

struct SampleShape {
  std::string mode = "ddp";
  std::size_t ranks = 2;
  std::size_t iterations = 12;
  std::size_t per_epoch = 5;
  std::int64_t batch_per_rank = 32;
  std::size_t warmup = 2;
  /// Waiting is a part of communication, and no arrivals are recorded. In schema 2 rank 0 waits for
  /// the last one for 1 ms, which `other` has in schema 1.
  int schema = 1;
};

inline RankPlace place_of_sample(std::int32_t rank) {
  RankPlace place;
  place.rank = rank;
  place.local_rank = rank % 2;
  place.host = "node" + std::to_string(rank / 2);
  place.device = "cpu: test";
  place.device_uuid = rank == 0 ? "" : "GPU-" + std::to_string(rank);
  place.affinity = "0-1";
  place.threads = 1;
  place.clock_offset_s = rank == 0 ? 0 : 1e-6 * rank;
  place.clock_uncertainty_s = rank == 0 ? kNotMeasured : 2e-7;
  return place;
}

inline RunInfo sample_info(const SampleShape& shape) {
  RunInfo info;
  info.schema = shape.schema;
  info.run_id = "6f1a3c1e-0000-4000-8000-00000000000" + std::to_string(shape.ranks);
  info.created = "2026-01-02T03:04:05Z";
  info.command_line = "gradsync-train --sync " + shape.mode + " --model lenet # Zürich";
  const auto ranks = static_cast<std::int64_t>(shape.ranks);
  info.config = {{"sync", shape.mode, "command line"},
                 {"model", "lenet", "job file"},
                 {"batch-per-rank", std::to_string(shape.batch_per_rank), "command line"},
                 {"batch-global", std::to_string(shape.batch_per_rank * ranks), "default"},
                 {"output", "", "default"}};
  info.provenance = {{"git revision", "abc123"}, {"env.SLURM_JOB_ID", "42"}};
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(shape.ranks); ++rank)
    info.topology.push_back(place_of_sample(rank));
  return info;
}

/// Iteration i of rank r takes 10 ms + i·0.1 ms + r ms: 6 ms compute, 3 ms communication of which
/// 2 ms beside compute, so exposed 1 ms, and the rest other. Iteration 0 has 3 buckets, all later
/// ones 2: what a rebuild of the buckets does.
inline RankIteration sample_rank(std::size_t iteration, std::size_t rank, std::size_t buckets) {
  const auto i = static_cast<double>(iteration);
  const auto r = static_cast<double>(rank);
  RankIteration result;
  result.begin_s = 0.011 * i + 1e-5 * r;
  result[Phase::kIteration] = 0.010 + 0.0001 * i + 0.001 * r;
  result[Phase::kData] = 0.0005;
  result[Phase::kForward] = 0.002;
  result[Phase::kBackward] = 0.0035;
  result[Phase::kOptimizer] = 0.0005;
  result[Phase::kCompute] = 0.006;
  result[Phase::kCommBusy] = 0.003;
  result[Phase::kHidden] = 0.002;
  result[Phase::kExposed] = 0.001;
  result[Phase::kOther] = result[Phase::kIteration] - 0.007;
  if (rank != 0) result[Phase::kWait] = 0.00025;  // rank 0: not measured
  result.loss = 2.3 * std::exp(-0.05 * i) + 0.01 * r;
  result.correct = static_cast<std::int64_t>(3 + iteration % 4 + rank);
  result.traffic_bytes = {1000, 0, 8, 0, static_cast<std::int64_t>(24 + rank), 64};
  result[Usage::kCpuTime] = 0.75 * result[Phase::kIteration];
  result[Usage::kVoluntarySwitches] = 2 + r;
  if (rank != 0) result[Usage::kInvoluntarySwitches] = 1;  // rank 0: not measured
  for (std::size_t b = 0; b < buckets; ++b) {
    const double ready_s = 0.003 + 0.001 * static_cast<double>(b);
    result.buckets.push_back({ready_s, ready_s + 1e-4, ready_s + 1e-3 + 1e-5 * r});
  }
  return result;
}

/// As schema 2 records it: in its first collective the rank waits so long for the last one.
inline void wait_for_last(RankIteration& rank, double wait_s) {
  rank[Phase::kWait] = wait_s;
  rank[Phase::kOther] -= wait_s;
  for (BucketTimes& bucket : rank.buckets)
    bucket.arrival_s = bucket.start_s;
  rank.buckets[0].end_s += wait_s;
  rank.buckets[0].arrival_s += wait_s;
}

inline IterationRow sample_row(const SampleShape& shape, std::size_t iteration) {
  IterationRow row;
  row.iteration = static_cast<std::int64_t>(iteration);
  row.epoch = static_cast<std::int64_t>(iteration / shape.per_epoch);
  row.step = static_cast<std::int64_t>(iteration % shape.per_epoch);
  row.learning_rate = 0.1 / static_cast<double>(1 + row.epoch);
  row.samples = shape.batch_per_rank * static_cast<std::int64_t>(shape.ranks);
  row.warmup = iteration < shape.warmup;
  row.buckets = {{4096, CollectiveKind::kAllReduce}, {256, CollectiveKind::kBroadcast}};
  if (iteration == 0) row.buckets.push_back({0, CollectiveKind::kBarrier});
  for (std::size_t rank = 0; rank < shape.ranks; ++rank) {
    row.ranks.push_back(sample_rank(iteration, rank, row.buckets.size()));
    if (shape.schema > 1) wait_for_last(row.ranks.back(), rank == 0 ? 0.001 : 0);
  }
  return row;
}

inline EpochRow sample_epoch(const SampleShape& shape, std::size_t epoch) {
  EpochRow row;
  row.epoch = static_cast<std::int64_t>(epoch);
  row.iterations = static_cast<std::int64_t>(shape.per_epoch);
  row.order_digest = "digest " + std::to_string(epoch);
  for (std::size_t rank = 0; rank < shape.ranks; ++rank) {
    const auto r = static_cast<double>(rank);
    const auto e = static_cast<double>(epoch);
    row.ranks.push_back({2.0 - 0.1 * e, 0.25 + 0.125 * e + 0.01 * r, kNotMeasured,
                         epoch == 0 ? kNotMeasured : 0.5, 0.05, 0.0625, kNotMeasured,
                         rank == 1 ? kNotMeasured : 1e8 + e});
  }
  return row;
}

inline VerificationRow sample_verification() {
  return {"ddp", true, true, 1.5e-7, 1e-6, "c0ffee"};
}

/// A pair of sizes of one collective; the second was not checked.
inline std::vector<CalibrationRow> sample_calibration() {
  return {{CollectiveKind::kAllReduce, "mpi", "isolated", "float", 1024, false, 20, 1.5e-5, 2e-5,
           1e-5, 4e-5, 3e-5, 3.9e-5, 1e-6, 0},
          {CollectiveKind::kScatter, "mpi-ring", "back-to-back", "half", 999, true, 7, 2.5e-5,
           kNotMeasured, 2e-5, 3e-5, kNotMeasured, kNotMeasured, kNotMeasured, -1}};
}

/// All kinds of windows in two rounds; communication-only has no compute.
inline std::vector<WindowRow> sample_windows(std::size_t ranks) {
  std::vector<WindowRow> rows;
  for (std::int64_t round = 0; round < 2; ++round)
    for (const std::string_view kind : kWindowKinds) {
      rows.push_back({std::string(kind), round, 5, {}});
      for (std::size_t rank = 0; rank < ranks; ++rank)
        rows.back().ranks.push_back({0.01 + 0.001 * static_cast<double>(rank),
                                     kind == "communication-only" ? kNotMeasured : 0.006, 0.003,
                                     0.001});
    }
  return rows;
}

inline std::vector<ClockRow> sample_clocks(std::size_t ranks) {
  ClockRow start{"start", 0.001, std::vector<ClockReading>(ranks)};
  ClockRow end{"end", 12.5, std::vector<ClockReading>(ranks, {1e-6, 2e-7})};
  return {start, end};
}

/// One with everything, one where the driver says little.
inline std::vector<DeviceSample> sample_device_samples() {
  DeviceSample sparse;
  sparse.rank = 1;
  sparse.at_s = 0.5;
  sparse.sm_clock_hz = 1.2e9;
  DeviceSample full;
  full.at_s = 0.25;
  full.memory_used_bytes = 7e10;
  full.sm_clock_hz = 1.98e9;
  full.memory_clock_hz = 3.2e9;
  full.power_w = 650;
  full.temperature_c = 61;
  full.throttle_reasons = 0x4;
  full.busy = 0.75;
  full.memory_busy = 0.5;
  full.energy_j = 1234.5;
  return {full, sparse};
}

/// One with everything, one of a host that lets nothing be read.
inline std::vector<HostSample> sample_host_samples() {
  return {{{0.25, 100, 10, 5e9, 1e6, 2e6}, 0}, {{0.5}, 1}};
}

inline std::vector<LayerRow> sample_layers() {
  return {{"conv1", "convolution", 450, 1e6, 1e6}, {"bn1", "", 12}};
}

inline std::vector<ProbeRow> sample_probes(std::size_t ranks) {
  return {{"matmul 1024", "fp32", 9, std::vector<RankProbe>(ranks, {5e10})}};
}

inline std::vector<NcclChoice> sample_nccl_choices() {
  return {{"AllReduce", "ncclFloat32", 26214400, "NVLS", "SIMPLE", 16},
          {"AllGather", "ncclOther", -1, "RING", "LL128", 8}};
}

/// Calibration, counterfactual windows and clocks.
inline void record_measurements(auto& recorder, std::size_t ranks) {
  for (const auto& row : sample_calibration())
    recorder.add(row);
  for (const auto& row : sample_windows(ranks))
    recorder.add(row);
  for (const auto& row : sample_clocks(ranks))
    recorder.add(row);
  for (const auto& sample : sample_device_samples())
    recorder.add(sample);
  for (const auto& sample : sample_host_samples())
    recorder.add(sample);
  for (const auto& layer : sample_layers())
    recorder.add(layer);
  for (const auto& probe : sample_probes(ranks))
    recorder.add(probe);
  for (const auto& choice : sample_nccl_choices())
    recorder.add(choice);
}

/// Everything of a run but its end.
inline void record_sample(auto& recorder, const SampleShape& shape) {
  recorder.add(sample_verification());
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    recorder.add(sample_row(shape, i));
    if ((i + 1) % shape.per_epoch == 0) recorder.add(sample_epoch(shape, i / shape.per_epoch));
  }
}

/// A run of its own for each path.
inline RunInfo sample_info_at(const std::filesystem::path& output, const SampleShape& shape) {
  RunInfo info = sample_info(shape);
  info.run_id += " in " + output.filename().string();
  return info;
}
inline RunInfo sample_info_at(const RunFolder::File& /*output*/, const SampleShape& shape) {
  return sample_info(shape);
}

/// A finished run, in a file or in a RunFolder.
inline void write_sample(const auto& output, const SampleShape& shape,
                         RunStatus status = RunStatus::kComplete) {
  auto&& recorder = recorder_of(output, sample_info_at(output, shape));
  record_sample(recorder, shape);
  recorder.finish(status);
}

/// A run in which nothing was measured.
inline void write_unmeasured(const auto& output, std::size_t iterations) {
  const SampleShape shape{"ddp", 2, iterations, 100, 32, 1};
  auto&& recorder = recorder_of(output, sample_info_at(output, shape));
  for (std::size_t i = 0; i < iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    for (RankIteration& rank : row.ranks) {
      rank.time_s.fill(kNotMeasured);
      rank.loss = kNotMeasured;
    }
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

/// Equal in every field; NaN equals NaN.
template <typename Record>
bool same(const Record& a, const Record& b) {
  return encode(a) == encode(b);
}

}  // namespace gradsync::testing
