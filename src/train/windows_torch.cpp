// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <deque>

#include <fmt/format.h>

#include "options/modes.h"
#include "record/row_figures.h"
#include "sync/replay.h"
#include "train/pipeline.h"
#include "train/windows.h"

namespace gradsync {

namespace {

/// The first iteration settles the buckets, the second is the first with them.
constexpr std::int64_t kWarmup = 2;

enum Kind : std::size_t { kComputeOnly, kCommunicationOnly, kSerial, kOverlapped, kUnmeasured };

/// Sums of what the iterations of a window measured.
class Sums {
 public:
  void add(const RankIteration& measured) {
    compute_s_ += measured[Phase::kCompute];
    comm_busy_s_ += measured[Phase::kCommBusy];
    exposed_s_ += measured[Phase::kExposed];
  }

  RankWindow per_iteration(double wall_s, std::int64_t iterations) const {
    const auto n = static_cast<double>(iterations);
    return {wall_s / n, compute_s_ / n, comm_busy_s_ / n, exposed_s_ / n};
  }

 private:
  double compute_s_ = 0, comm_busy_s_ = 0, exposed_s_ = 0;
};

void copy_values(const std::vector<torch::Tensor>& from, std::vector<torch::Tensor>& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i)
    to[i].copy_(from[i]);
}

/// A replica that computes as the trained one does.
Replica copy_of(const Replica& trained, const RunSetting& setting) {
  Replica copy = make_replica(setting.options.model, setting.options.seed, setting.compute.layout,
                              setting.compute.device);
  copy_values(trained.parameters, copy.parameters);
  copy_values(trained.buffers, copy.buffers);
  return copy;
}

/// Figures of one window on this rank.
struct Measured {
  RankWindow rank;
  std::int64_t iterations = 0;
};

/// All windows of one run.
class Windows {
 public:
  Windows(Exchange& exchange, const RunSetting& setting, const TrainedState& trained)
      : exchange_(exchange),
        setting_(setting),
        trained_(trained),
        next_iteration_(trained.iterations + kWarmup) {}

  Measured run(Kind kind) { return kind == kCommunicationOnly ? communication() : training(kind); }

 private:
  std::unique_ptr<Replay> replay() {
    const Mode& mode = mode_named(setting_.options.sync);
    return std::make_unique<Replay>(exchange_, trained_.buckets, mode.overlaps,
                                    mode.casts ? setting_.options.wire_dtype : "fp32",
                                    setting_.compute.device);
  }

  Measured communication() {
    const auto mode = replay();
    const std::int64_t iterations = setting_.options.counterfactual;
    for (std::int64_t i = 0; i < kWarmup; ++i)
      exchange_once(*mode);
    exchange_.session().meet();
    exchange_.await(exchange_.now().mark);
    double busy_s = 0;
    const Stopwatch watch;
    std::deque<std::vector<CollectiveRecord>> started;
    for (std::int64_t i = 0; i < iterations; ++i) {
      started.push_back(exchange_once(*mode));
      if (started.size() > in_flight()) busy_s += take_first(started);
    }
    while (!started.empty())
      busy_s += take_first(started);
    const double wall_s = watch.elapsed_s();
    const auto n = static_cast<double>(iterations);
    return {{wall_s / n, kNotMeasured, busy_s / n, busy_s / n}, iterations};
  }

  std::vector<CollectiveRecord> exchange_once(Replay& mode) {
    exchange_.log().begin_iteration(next_iteration_++);
    mode.synchronize();
    return exchange_.log().records();
  }

  /// Seconds inside the collectives of the first of some exchanges, which follow each other.
  double take_first(std::deque<std::vector<CollectiveRecord>>& started) {
    DeviceLane* lane = exchange_.lane();
    double busy_s = 0;
    for (const CollectiveRecord& record : started.front()) {
      if (lane) exchange_.await(record.end);
      busy_s +=
          lane ? lane->ring.elapsed_s(record.start, record.end) : record.end_s - record.start_s;
    }
    if (lane && !started.front().empty())
      lane->ring.release_below(started.front().back().end.ticket);
    started.pop_front();
    return busy_s;
  }

  std::size_t in_flight() const { return exchange_.lane() ? Pipeline::kInFlight : 0; }

  Measured training(Kind kind) {
    TrainOptions options = setting_.options;
    if (kind == kComputeOnly) options.sync = kNoExchange;
    // The serial window replays the statistics' collectives with the others.
    if (kind == kComputeOnly || kind == kSerial) options.batch_norm = BatchNormMode::kLocal;
    RankTraining training(exchange_, copy_of(trained_.replica, setting_), setting_.data,
                          setting_.compute, options, kind == kSerial ? replay() : nullptr);
    training.feed.begin_epoch(0);
    return iterate(training, kind);
  }

  Measured iterate(RankTraining& training, Kind kind) {
    const std::int64_t per_epoch = training.feed.iterations_of(0);
    // The number requested, or what an epoch has after the warm-up.
    const std::int64_t iterations =
        std::clamp<std::int64_t>(per_epoch - kWarmup, 1, setting_.options.counterfactual);
    const std::int64_t warmup = std::clamp<std::int64_t>(per_epoch - iterations, 0, kWarmup);
    Pipeline pipeline(exchange_, training.replica, setting_.clock_offset_s);
    Sums sums;
    run_iterations(training, pipeline, 0, warmup, sums);
    training.measured = kind != kUnmeasured;
    exchange_.log().set_timing(training.measured);
    sums = Sums();
    exchange_.session().meet();
    const Stopwatch watch;
    run_iterations(training, pipeline, warmup, warmup + iterations, sums);
    const double wall_s = watch.elapsed_s();
    exchange_.log().set_timing(true);
    return {sums.per_iteration(wall_s, iterations), iterations};
  }

  /// Started and finished as in training.
  void run_iterations(RankTraining& training, Pipeline& pipeline, std::int64_t first,
                      std::int64_t last, Sums& sums) {
    const double rate = setting_.options.learning_rate.base;
    for (std::int64_t step = first; step < last; ++step) {
      training.completes = step + 1 == last || DeferredUpdates::completes_after(step + 1);
      pipeline.push(start_iteration(training, next_iteration_++, step, rate));
      while (pipeline.full() && !training.defers())
        finish(training, pipeline.finish_first(), sums);
    }
    while (!pipeline.empty())
      finish(training, pipeline.finish_first(), sums);
  }

  /// The rows of all ranks meet on rank 0, unless nothing is measured.
  void finish(const RankTraining& training, FinishedIteration finished, Sums& sums) {
    sums.add(finished.measured);
    if (training.measured) gather_rows(exchange_, finished, 0);
  }

  Exchange& exchange_;
  const RunSetting& setting_;
  const TrainedState& trained_;
  std::int64_t next_iteration_;  ///< above those that --verify init compares
};

Kind kind_of(std::string_view name) {
  return static_cast<Kind>(std::find(kWindowKinds.begin(), kWindowKinds.end(), name) -
                           kWindowKinds.begin());
}

/// "12.34 ms", or n/a.
std::string ms(double time_s) {
  return std::isnan(time_s) ? "n/a" : fmt::format("{:.3f} ms", time_s * 1e3);
}

std::string figure(double value, int decimals, const std::string& unit) {
  return std::isnan(value) ? "n/a" : fmt::format("{:.{}f}{}", value, decimals, unit);
}

std::vector<std::string> conclusions(const Counterfactual& result) {
  return {
      fmt::format("overlap gain {} = (serial {} - overlapped {}) / communication {}",
                  figure(result.overlap_gain(), 3, ""), ms(result.serial_s),
                  ms(result.overlapped_s), ms(result.communication_s)),
      fmt::format("overlap by OSU's formula {} = max(0, 1 - (overlapped {} - compute-only {}) / "
                  "communication {})",
                  figure(result.osu_overlap_percent(), 1, " %"), ms(result.overlapped_s),
                  ms(result.compute_only_s), ms(result.communication_s)),
      fmt::format("contention {} = compute beside communication {} - alone {}",
                  ms(result.contention_s()), ms(result.compute_beside_s),
                  ms(result.compute_alone_s)),
      fmt::format("cost of measuring {} = (overlapped {} - unmeasured {}) / unmeasured",
                  figure(result.measuring_percent(), 2, " %"), ms(result.overlapped_s),
                  ms(result.unmeasured_s)),
      fmt::format("per iteration: median of {} rounds of the mean over the ranks, at least {} "
                  "iterations a window after at most {} to warm up",
                  result.rounds, result.iterations, kWarmup),
  };
}

}  // namespace

std::vector<std::string_view> window_kinds(const std::string& mode, bool communicates) {
  std::vector<std::string_view> kinds = {kWindowKinds[kComputeOnly]};
  if (communicates) kinds.push_back(kWindowKinds[kCommunicationOnly]);
  if (communicates && mode_named(mode).overlaps) kinds.push_back(kWindowKinds[kSerial]);
  kinds.push_back(kWindowKinds[kOverlapped]);
  kinds.push_back(kWindowKinds[kUnmeasured]);
  return kinds;
}

std::vector<WindowRow> run_windows(Exchange& exchange, const RunSetting& setting,
                                   const TrainedState& trained) {
  const auto kinds =
      window_kinds(setting.options.sync, exchange.session().size() > 1 && !trained.buckets.empty());
  Windows windows(exchange, setting, trained);
  std::vector<WindowRow> rows;
  for (std::int64_t round = 0; round < setting.options.counterfactual_rounds; ++round)
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto name = kinds[(i + static_cast<std::size_t>(round)) % kinds.size()];
      if (trained.before_window) trained.before_window();
      const Measured mine = windows.run(kind_of(name));
      WindowRow row{std::string(name), round, mine.iterations, {}};
      if (exchange.session().rank() == 0)
        row.ranks.resize(static_cast<std::size_t>(exchange.session().size()));
      exchange.session().gather(std::as_bytes(std::span(&mine.rank, 1)),
                                std::as_writable_bytes(std::span(row.ranks)));
      rows.push_back(std::move(row));
    }
  return rows;
}

Table windows_table(const std::vector<WindowRow>& rows) {
  Table table{"counterfactual", "Counterfactual windows, per iteration", {}, {}, {}};
  table.columns = {{"kind", "window", true},
                   {"iteration_ms", "iteration ms"},
                   {"compute_ms", "compute ms"},
                   {"comm_busy_ms", "comm ms"},
                   {"exposed_ms", "exposed ms"}};
  for (const std::string_view kind : kWindowKinds) {
    const auto cell = [&](double RankWindow::*value) {
      return Cell::of(1e3 * window_figure(rows, kind, value), 3);
    };
    table.add({std::string(kind), cell(&RankWindow::iteration_s), cell(&RankWindow::compute_s),
               cell(&RankWindow::comm_busy_s), cell(&RankWindow::exposed_s)});
  }
  table.notes = conclusions(counterfactual(rows));
  return table;
}

}  // namespace gradsync
