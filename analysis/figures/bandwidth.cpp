// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/bandwidth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "base/ranges.h"
#include "options/transport_choice.h"
#include "record/row_figures.h"

namespace gradsync::report {

namespace {

/// n, where something crosses a link.
double several(double ranks) {
  return ranks > 1 ? ranks : kNotMeasured;
}

/// How reports print a convention, in the order of the enumeration.
struct Printed {
  std::string_view formula, unit, column_unit;
  double unit_bytes;
};
constexpr std::array<Printed, kConventionNames.size()> kPrinted = {{
    {"2(n-1)/n * S * iterations / communication time", "GB/s", "gb_per_s", kGB},
    {"S / communication time of all iterations", "GB/s", "gb_per_s", kGB},
    {"2(n-1)/n * S / communication time of all iterations", "GiB/s", "gib_per_s", kGiB},
    {"2(n-1) * S * iterations / communication time", "GB/s", "gb_per_s", kGB},
}};

const Printed& printed_as(BandwidthConvention convention) {
  return kPrinted[static_cast<std::size_t>(convention)];
}

double volume_bytes(BandwidthConvention convention, const EpochCommunication& epoch) {
  const double n = several(epoch.ranks);
  const double ring = busbw_factor(CollectiveKind::kAllReduce, n);
  switch (convention) {
    case BandwidthConvention::kBusbw:
      return ring * epoch.message_bytes * epoch.iterations;
    case BandwidthConvention::kMessage:
      return n / n * epoch.message_bytes;  // NaN for one rank
    case BandwidthConvention::kRingEpoch:
      return ring * epoch.message_bytes;
    case BandwidthConvention::kTotalVolume:
      return 2 * (n - 1) * epoch.message_bytes * epoch.iterations;
  }
  return kNotMeasured;
}

}  // namespace

double bandwidth(BandwidthConvention convention, const EpochCommunication& epoch) {
  return volume_bytes(convention, epoch) / positive(epoch.communication_s);
}

std::string_view convention_name(BandwidthConvention convention) {
  return kConventionNames[static_cast<std::size_t>(convention)];
}

std::string_view convention_formula(BandwidthConvention convention) {
  return printed_as(convention).formula;
}

double convention_unit_bytes(BandwidthConvention convention) {
  return printed_as(convention).unit_bytes;
}

std::string_view convention_unit(BandwidthConvention convention) {
  return printed_as(convention).unit;
}

std::string convention_column(BandwidthConvention convention, std::string_view method) {
  std::string name = fmt::format("{}_{}_{}", convention_name(convention), method,
                                 printed_as(convention).column_unit);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::optional<BandwidthConvention> parse_convention(std::string_view name) {
  const auto found = std::ranges::find(kConventionNames, name);
  if (found == kConventionNames.end()) return std::nullopt;
  return static_cast<BandwidthConvention>(found - kConventionNames.begin());
}

double allreduce_tree_s(double bytes, double bandwidth_bytes_per_s, double ranks) {
  return bytes / positive(bandwidth_bytes_per_s) * std::log2(ranks >= 1 ? ranks : kNotMeasured);
}

double allreduce_ring_s(double bytes, double bandwidth_bytes_per_s, double ranks) {
  const double n = ranks >= 1 ? ranks : kNotMeasured;
  return bytes / positive(bandwidth_bytes_per_s) * (2 * (n - 1) / n);
}

namespace {

constexpr std::size_t kBlocks = 8;
constexpr std::size_t kBlockRows = 25;

/// Transfer times by the bytes of the collectives of one kind in an iteration.
using Layouts = std::map<std::vector<std::int64_t>, std::vector<double>>;
using ByKind = std::array<Layouts, kCollectiveNames.size()>;

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
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    if (!sizes[kind].empty()) kinds[kind][std::move(sizes[kind])].push_back(sum_s[kind]);
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
  const CollectiveKind kind = row.buckets[bucket].kind;
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
                 kind == CollectiveKind::kReduceScatter
             ? shortest_moving_s(row, bucket)
             : last_in_to_last_out_s(row, bucket);
}

std::vector<CollectiveFigures> collective_figures(const RunGroup& group) {
  ByKind kinds;
  for (const Run* run : group.repeats)
    add_run(*run, kinds);
  std::vector<CollectiveFigures> all;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const auto most = std::ranges::max_element(
        kinds[kind], {}, [](const auto& layout) { return layout.second.size(); });
    if (most != kinds[kind].end())
      all.push_back({static_cast<CollectiveKind>(kind), most->first, most->second});
  }
  return all;
}

namespace {

std::vector<CalibrationCurve> curves_of(const Run& run, CollectiveKind kind) {
  std::vector<CalibrationRow> rows = run.calibration();
  std::erase_if(rows, [&](const CalibrationRow& row) {
    return row.kind != kind || row.type != kFloatType || !usable(row);
  });
  return calibration_curves(rows, run.reader->ranks());
}

/// Keeps the curves whose `field` is the first of `wanted` that any has, else that of the first.
void keep(std::vector<CalibrationCurve>& curves, std::string CalibrationCurve::*field,
          const std::vector<std::string>& wanted) {
  std::string chosen = curves.front().*field;
  for (const std::string& one : wanted)
    if (contains(curves, one, field)) {
      chosen = one;
      break;
    }
  std::erase_if(curves, [&](const CalibrationCurve& curve) { return curve.*field != chosen; });
}

}  // namespace

std::vector<std::string> calibrated_as(const std::string& transport, const std::string& mode,
                                       CollectiveKind kind) {
  const Mode& how = mode_named(mode);
  const std::vector<std::string> over_mpi = how.overlaps || how.sleeps
                                                ? std::vector<std::string>{"mpi-ring", "mpi"}
                                                : std::vector<std::string>{"mpi", "mpi-ring"};
  const TransportTraits* traits = find_transport(transport);
  if (!traits || !traits->host_memory) return {transport};
  const bool half = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  if (transport == "mpi" && half && how.halves != Halves::kApart) return {"mpi-ring"};
  const bool moves =
      kind == CollectiveKind::kAllReduce || (half && how.halves >= traits->moves_halves);
  return transport == "mpi" || !moves ? over_mpi : std::vector<std::string>{transport};
}

double LinkCurve::time_at(double size) const {
  const auto above = std::ranges::lower_bound(bytes, size);
  if (above == bytes.end()) return kNotMeasured;
  const auto i = static_cast<std::size_t>(above - bytes.begin());
  if (bytes[i] == size) return times_s[i];
  if (i == 0) return kNotMeasured;
  const double part = std::log(size / bytes[i - 1]) / std::log(bytes[i] / bytes[i - 1]);
  return times_s[i - 1] * std::pow(times_s[i] / times_s[i - 1], part);
}

LinkCurve link_curve(const RunGroup& group, CollectiveKind kind) {
  // What a run holds itself comes first.
  for (const bool own : {true, false})
    for (const Run* run : group.repeats) {
      if ((run->calibration_file == nullptr) != own) continue;
      std::vector<CalibrationCurve> curves = curves_of(*run, kind);
      if (curves.empty()) continue;
      auto wanted = calibrated_as(option_value(*run, "transport"), run->mode, kind);
      wanted.emplace_back("mpi");
      keep(curves, &CalibrationCurve::transport, wanted);
      keep(curves, &CalibrationCurve::cadence, {"isolated"});
      return {std::move(curves.front()), own ? "" : run->calibration_file->name()};
    }
  return {};
}

double TrafficFigures::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

std::vector<TrafficFigures> traffic_figures(RunReader& run, const SteadyRows& steady) {
  std::vector<TrafficFigures> all(run.ranks());
  for (std::size_t category = 0; category < kRowCategories; ++category) {
    const auto means = rank_means(
        run, steady, [category](RunReader& reader, std::size_t first, std::size_t count) {
          return reader.traffic(static_cast<Traffic>(category), first, count);
        });
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].bytes[category] = means[rank];
  }
  for (TrafficFigures& figures : all)
    figures.iterations = steady.kept();
  return all;
}

SentFigures sent_figures(const Run& run) {
  const auto most = [](const std::vector<double>& ranks) {
    double largest = kNotMeasured;
    for (const double one : ranks)
      largest = std::fmax(largest, one);
    return largest;
  };
  // An iteration of local-sgd that exchanges nothing has nothing to turn.
  const MatrixBlocks turning = [&](RunReader& reader, std::size_t first, std::size_t count) {
    Matrix block = phase_blocks(Phase::kConvert)(reader, first, count);
    if (exchange_period(*run.reader) > 1)
      for (double& time_s : block.values)
        if (std::isnan(time_s)) time_s = 0;
    return block;
  };
  SentFigures result;
  result.convert_s = most(rank_means(*run.reader, run.steady, turning));
  result.moving_s = most(rank_means(*run.reader, run.steady, phase_blocks(Phase::kCommBusy)));
  result.exposed_s = most(rank_means(*run.reader, run.steady, phase_blocks(Phase::kExposed)));
  const auto gradients = static_cast<std::size_t>(Traffic::kGradients),
             parameters = static_cast<std::size_t>(Traffic::kParameters),
             inputs = static_cast<std::size_t>(Traffic::kInputs);
  result.link_bytes =
      most(each(traffic_figures(*run.reader, run.steady), [&](const TrafficFigures& rank) {
        return rank.bytes[gradients] + rank.bytes[parameters] + rank.bytes[inputs];
      }));
  return result;
}

TrafficFigures sum_of(const std::vector<TrafficFigures>& ranks) {
  TrafficFigures sum;
  for (const TrafficFigures& rank : ranks) {
    sum.iterations = rank.iterations;
    for (std::size_t category = 0; category < kRowCategories; ++category)
      sum.bytes[category] += rank.bytes[category];
  }
  return sum;
}

}  // namespace gradsync::report
