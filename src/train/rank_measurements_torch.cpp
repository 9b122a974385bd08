// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

#include <fmt/format.h>
#include <torch/types.h>

#include "base/memory.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "calibrate/calibrator.h"
#include "record/row_figures.h"
#include "stats/bandwidth.h"
#include "stats/clock.h"
#include "stats/statistics.h"
#include "train/rank_measurements.h"

namespace gradsync {

using namespace calibrate;

namespace {

/// Quick beside a training run: a cell takes about a tenth of a second, or five calls.
CallCounts quick_counts() {
  CallCounts counts;
  counts.warmup = 2;
  counts.timed = 20;
  counts.budget_s = 0.1;
  return counts;
}

std::vector<PlannedCell> all_cells(std::string_view transport,
                                   const std::vector<std::int64_t>& sizes,
                                   const std::vector<BucketShape>& buckets) {
  std::vector<const OperationEntry*> all;
  for (const OperationEntry& entry : operations())
    if (entry.in_training || contains(buckets, entry.kind, &BucketShape::kind))
      all.push_back(&entry);
  return plan_cells(operations_over(transport, all), kCadences, sizes, buckets);
}

Table curves_table(const std::vector<CalibrationCurve>& curves) {
  Table table{"calibration", "Calibration on these ranks", {}, {}, {}};
  table.columns = {{"collective", "collective", true}, {"transport", "transport", true},
                   {"cadence", "cadence", true},       {"sizes", "sizes"},
                   {"plateau_GBps", "plateau GB/s"},   {"half_bandwidth_bytes", "half at B"},
                   {"alpha_us", "alpha us"},           {"beta_ns_per_byte", "beta ns/B"},
                   {"residual_percent", "residual %"}, {"wrong", "wrong"}};
  for (const CalibrationCurve& curve : curves)
    table.add({std::string(collective_name(curve.kind)), curve.transport, curve.cadence,
               Cell::count(static_cast<double>(curve.rows.size())),
               Cell::of(curve.plateau_busbw / kGB, 3), Cell::of(curve.half_bandwidth_bytes, 0),
               Cell::of(curve.fit.alpha_s * 1e6, 2), Cell::of(curve.fit.beta_s_per_byte * 1e9, 4),
               Cell::of(curve.fit.residual_rms * 1e2, 1),
               Cell::count(static_cast<double>(curve.wrong))});
  table.notes = {
      "median time of the slowest rank over at most 20 calls (about 0.1 s); plateau: busbw, median "
      "of the 3 largest sizes",
      "alpha + bytes * beta: least squares on relative residuals; residual: their root mean "
      "square"};
  return table;
}

/// Whether the hosts have room for the calibration; rank 0 says where one has not. Collective.
bool has_memory(const Session& session, const std::vector<PlannedCell>& cells) {
  const auto why = lacking_memory(session, cells);
  const std::vector<std::string> whys = session.gather(why ? std::string(why->what()) : "");
  std::array<double, 1> lacking = {why ? 1.0 : 0.0};
  session.sum(lacking);
  if (lacking[0] == 0) return true;
  for (const std::string& one : whys)
    if (!one.empty()) {
      print_warning(
          "gradsync-train",
          fmt::format("no calibration after the training, whose runs are complete: {}", one));
      break;
    }
  return false;
}

}  // namespace

void calibrate_ranks(const Session& session, Transport& transport,
                     const CalibrationRequest& request, const std::vector<Recorder*>& recorders,
                     DeviceLane* lane) {
  const auto cells = all_cells(transport.name(), request.sizes, request.buckets);
  if (cells.empty()) return;
  std::vector<CalibrationRow> rows;
  std::int64_t wrong = 0;
  {
    const WatchdogTimeoutExtension measures(session.watchdog(), WatchedPhase::kCalibration);
    return_freed_memory();  // of trainings that are over
    if (!request.stops)
      require_memory(session, cells);
    else if (!has_memory(session, cells))
      return;
    Calibrator calibrator(session, transport, session.watchdog(), lane);
    for (const PlannedCell& cell : cells) {
      if (request.stops &&
          request.stops(fmt::format("{} of {} measurements of the calibration were made",
                                    rows.size(), cells.size())))
        break;
      rows.push_back(calibrator.measure(cell, quick_counts()));
      wrong += rows.back().wrong;
    }
  }
  {
    const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kJournal);
    for (const CalibrationRow& row : rows)
      for (Recorder* recorder : recorders)
        if (recorder) recorder->add(row);
  }
  if (session.root() && request.print && !rows.empty())
    print_text(std::cout,
               curves_table(calibration_curves(rows, static_cast<std::size_t>(session.size()))));
  session.together([&] {
    if (wrong > 0)
      throw Error(ExitCode::kCheckFailed, "calibration: " + count_text(wrong, "wrong value"),
                  "do not use results of these ranks; try another transport or library version");
  });
}

ClockRow clock_row(const Session& session, const ClockOffset& mine, const char* when, double at_s) {
  return {when, at_s, session.gather(ClockReading{mine.offset_s, mine.uncertainty_s})};
}

std::string drift_text(const ClockRow& start, const ClockRow& end) {
  double drift_s = 0, uncertainty_s = 0;
  for (std::size_t rank = 0; rank < start.ranks.size(); ++rank) {
    const ClockReading &a = start.ranks[rank], &b = end.ranks[rank];
    if (rank > 0 && std::abs(b.offset_s - a.offset_s) < drift_s) continue;
    drift_s = std::abs(b.offset_s - a.offset_s);
    uncertainty_s = a.uncertainty_s + b.uncertainty_s;
  }
  const double elapsed_s = end.at_s - start.at_s;
  return fmt::format(
      "clocks: drift at most {:.3f} us in {:.1f} s ({:.3f} ppm), uncertainty "
      "{:.3f} us{}",
      drift_s * 1e6, elapsed_s, 1e6 * drift_s / elapsed_s, uncertainty_s * 1e6,
      drift_s <= uncertainty_s ? ": below the uncertainty" : "");
}

namespace {

constexpr double kBudget_s = 0.2;
constexpr std::int64_t kFewest = 5;

/// Length of the matrices, and how many products are timed together: a GPU's are launched one after
/// the other, and only the last is waited for.
struct ProbeSize {
  std::int64_t length, products;
};
ProbeSize size_on(const torch::Device& device) {
  return device.is_cuda() ? ProbeSize{8192, 10} : ProbeSize{1024, 1};
}

torch::Dtype type_of(Precision precision) {
  return precision == Precision::kBf16   ? torch::kBFloat16
         : precision == Precision::kFp16 ? torch::kFloat16
                                         : torch::kFloat32;
}

class MatrixProbe {
 public:
  MatrixProbe(const ComputeSettings& compute, ProbeSize size) : size_(size) {
    const auto options = torch::device(compute.device).dtype(type_of(compute.precision));
    // Not zeros: the power that a product takes depends on its numbers.
    left_ = torch::linspace(-1, 1, size.length * size.length, torch::device(compute.device))
                .reshape({size.length, size.length})
                .to(options);
    right_ = left_.t().contiguous();
    result_ = torch::empty_like(left_);
  }

  /// One timing, in seconds a product.
  double time_s() {
    const Stopwatch watch;
    for (std::int64_t i = 0; i < size_.products; ++i)
      torch::mm_out(result_, left_, right_);
    static_cast<void>(result_[0][0].item<float>());
    return watch.elapsed_s() / static_cast<double>(size_.products);
  }

 private:
  ProbeSize size_;
  torch::Tensor left_, right_, result_;
};

/// What one rank measured.
struct RankArithmetic {
  double flop_per_s = kNotMeasured;
  std::int64_t repetitions = 0;
};

RankArithmetic measure(const ComputeSettings& compute, ProbeSize size) {
  const torch::NoGradGuard guard;
  MatrixProbe probe(compute, size);
  static_cast<void>(probe.time_s());
  std::vector<double> times_s;
  const Stopwatch watch;
  while (watch.elapsed_s() < kBudget_s || static_cast<std::int64_t>(times_s.size()) < kFewest)
    times_s.push_back(probe.time_s());
  const auto length = static_cast<double>(size.length);
  return {2 * length * length * length / median(times_s),
          static_cast<std::int64_t>(times_s.size()) * size.products};
}

}  // namespace

void probe_arithmetic(const Session& session, const ComputeSettings& compute, bool tf32,
                      const std::vector<Recorder*>& recorders) {
  const ProbeSize size = size_on(compute.device);
  std::vector<RankArithmetic> all;
  {
    const WatchdogTimeoutExtension measures(session.watchdog(), WatchedPhase::kCalibration);
    session.meet();
    all = session.gather(measure(compute, size));
  }
  if (!session.root()) return;
  ProbeRow row;
  row.operation = fmt::format("matmul {}", size.length);
  row.precision = tf32 && compute.precision == Precision::kFp32 && compute.device.is_cuda()
                      ? "tf32"
                      : precision_name(compute.precision);
  row.repetitions = all.front().repetitions;
  double least = all.front().flop_per_s, most = least;
  for (const RankArithmetic& rank : all) {
    row.ranks.push_back({rank.flop_per_s});
    row.repetitions = std::min(row.repetitions, rank.repetitions);
    least = std::min(least, rank.flop_per_s);
    most = std::max(most, rank.flop_per_s);
  }
  const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kJournal);
  for (Recorder* recorder : recorders)
    if (recorder) recorder->add(row);
  std::cout << fmt::format(
                   "arithmetic: {} in {}, all ranks at once: {:.3g} to {:.3g} GFLOP/s a rank\n",
                   row.operation, row.precision, 1e-9 * least, 1e-9 * most)
            << std::flush;
}

std::int64_t most_of_ranks(Exchange& exchange, std::int64_t mine) {
  return static_cast<std::int64_t>(exchange.session().max(static_cast<double>(mine)));
}

}  // namespace gradsync
