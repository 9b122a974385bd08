#include "analysis/figures/collective_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace gradsync::report {

namespace {

constexpr std::size_t kBlocks = 8;
constexpr std::size_t kBlockRows = 25;

using ByKind = std::array<CollectiveFigures, kCollectiveNames.size()>;

bool waits_for_all(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather;
}

double last_in_to_last_out_s(const IterationRow& row, std::size_t bucket) {
  double in_s = -std::numeric_limits<double>::infinity(), out_s = in_s;
  for (const RankIteration& rank : row.ranks) {
    const BucketTimes& times = rank.buckets[bucket];
    const double duration_s = rank.begin_s + times.end_s - times.start_s;
    if (std::isnan(duration_s)) return kNotMeasured;
    in_s = std::max(in_s, rank.begin_s + times.start_s);
    out_s = std::max(out_s, rank.begin_s + times.end_s);
  }
  return std::isfinite(out_s - in_s) ? out_s - in_s : kNotMeasured;
}

void add_row(const IterationRow& row, ByKind& kinds) {
  std::array<double, kCollectiveNames.size()> sum_s{};
  std::array<std::vector<std::int64_t>, kCollectiveNames.size()> sizes;
  for (std::size_t b = 0; b < row.buckets.size(); ++b) {
    const auto kind = static_cast<std::size_t>(row.buckets[b].kind);
    if (kind >= kinds.size() || row.buckets[b].bytes <= 0) continue;
    sum_s[kind] += transfer_s(row, b);
    sizes[kind].push_back(row.buckets[b].bytes);
  }
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (sizes[kind].empty()) continue;
    kinds[kind].transfer_s.push_back(sum_s[kind]);
    kinds[kind].sizes = std::move(sizes[kind]);
  }
}

struct Block {
  std::size_t first, count;
};

/// All rows from `first` on, or evenly spaced blocks of them where they are many.
std::vector<Block> blocks_of(std::size_t first, std::size_t rows, std::size_t most_rows) {
  // Each read of a file has its price: few rows are read at once.
  if (rows > 0 && rows <= std::min(kBlocks * kBlockRows, most_rows)) return {{first, rows}};
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const std::size_t from = i * rows / kBlocks, to = (i + 1) * rows / kBlocks;
    if (to > from) blocks.push_back({first + from, std::min({to - from, kBlockRows, most_rows})});
  }
  return blocks;
}

void add_run(const Run& run, ByKind& kinds) {
  const std::size_t rows = run.reader->iterations();
  const std::size_t first = std::min(run.steady.first, rows);
  const std::size_t most = rows_per_block(run.reader->ranks(), run.reader->index().buckets);
  for (const Block& block : blocks_of(first, rows - first, most)) {
    const auto read = run.reader->rows(block.first, block.count);
    for (std::size_t i = 0; i < read.size(); ++i)
      if (run.steady.keeps(block.first + i)) add_row(read[i], kinds);
  }
}

}  // namespace

double moving_s(const BucketTimes& times) {
  return std::isnan(times.arrival_s) ? times.end_s - times.start_s : times.moving_s();
}

double shortest_moving_s(const IterationRow& row, std::size_t bucket) {
  double least = std::numeric_limits<double>::infinity();
  for (const RankIteration& rank : row.ranks) {
    const double duration_s = moving_s(rank.buckets[bucket]);
    if (std::isnan(duration_s)) return kNotMeasured;
    least = std::min(least, duration_s);
  }
  return std::isfinite(least) ? least : kNotMeasured;
}

double CollectiveFigures::payload_bytes() const {
  return std::accumulate(sizes.begin(), sizes.end(), 0.0, [](double sum, std::int64_t size) {
    return sum + static_cast<double>(size);
  });
}

double transfer_s(const IterationRow& row, std::size_t bucket) {
  return waits_for_all(row.buckets[bucket].kind) ? shortest_moving_s(row, bucket)
                                                 : last_in_to_last_out_s(row, bucket);
}

std::vector<CollectiveFigures> collective_figures(const RunGroup& group) {
  ByKind kinds;
  std::size_t steady = 0;
  for (const Run* run : group.repeats) {
    add_run(*run, kinds);
    steady += run->steady.kept();
  }
  std::vector<CollectiveFigures> all;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (kinds[kind].sizes.empty()) continue;
    all.push_back(std::move(kinds[kind]));
    all.back().kind = static_cast<CollectiveKind>(kind);
    all.back().steady_iterations = steady;
  }
  return all;
}

}  // namespace gradsync::report
