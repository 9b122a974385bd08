// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "mpi/ranks.h"
#include "record/reader.h"
#include "train/rank_measurements.h"

using namespace gradsync;
using test::Ranks;

namespace {

/// Readings that tell the rank and their number.
std::function<GpuReading()> numbered(int rank) {
  return [rank, count = 0.0]() mutable {
    GpuReading reading;
    reading.at_s = 100 + ++count;
    reading.power_w = rank;
    return reading;
  };
}

RunInfo info_of(int ranks) {
  RunInfo info;
  info.run_id = "id";
  info.created = "2026-01-01T00:00:00Z";
  info.topology.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    info.topology[static_cast<std::size_t>(rank)].rank = rank;
  return info;
}

}  // namespace

TEST_CASE("samples of every rank's GPU reach the run file, also where one rank has no monitor") {
  Ranks ranks;
  test::SharedFolder folder;
  const auto output = folder.path() / "run.h5";
  std::unique_ptr<Recorder> recorder;
  if (ranks.rank == 0) recorder = std::make_unique<Recorder>(output, info_of(ranks.size));
  const bool monitored = ranks.rank != 1;
  RankSamples<GpuReading> samples(monitored ? numbered(ranks.rank) : nullptr, 0.1);
  for (int times = 0; times < 2; ++times) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    samples.record(ranks.exchange, /*clock_offset_s=*/5, /*start_s=*/100, recorder.get());
  }
  if (ranks.rank != 0) return;
  recorder->finish(RunStatus::kComplete);
  std::vector<double> next(static_cast<std::size_t>(ranks.size), 6);  // 100 + 1 + offset − start
  const auto run = open_run(output);
  for (const DeviceSample& sample : run->device_samples()) {
    auto& expected = next.at(static_cast<std::size_t>(sample.rank));
    CHECK(sample.at_s == expected);
    CHECK(sample.power_w == sample.rank);
    expected += 1;
  }
  for (int rank = 0; rank < ranks.size; ++rank)
    CHECK((next[static_cast<std::size_t>(rank)] > 6) == (rank != 1));
}

TEST_CASE("samples of ranks with more than travel at once come whole and in order") {
  Ranks ranks;
  std::vector<HostSample> mine(static_cast<std::size_t>(70 * ranks.rank));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i].rank = ranks.rank;
    mine[i].at_s = static_cast<double>(i);
  }
  std::vector<double> next(static_cast<std::size_t>(ranks.size), 0);
  gather_samples(ranks.exchange, mine, [&](const HostSample& sample) {
    CHECK(sample.at_s == next.at(static_cast<std::size_t>(sample.rank))++);
  });
  for (int rank = 0; rank < ranks.size; ++rank)
    CHECK(next[static_cast<std::size_t>(rank)] == (ranks.rank == 0 ? 70 * rank : 0));
}
