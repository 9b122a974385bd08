#include "train/windows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "record/counterfactual.h"
#include "sync/replay.h"
#include "train/gather_rows.h"
#include "train/verify_modes.h"

namespace gradsync {

namespace {

/// The first iteration settles the buckets, the second is the first with them.
constexpr std::int64_t kWarmup = 2;

enum Kind : std::size_t { kComputeOnly, kCommunicationOnly, kSerial, kOverlapped, kUnmeasured };

bool overlaps(const std::string& mode) {
  return mode == "ddp" || mode == "c10d";
}

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
  Replica copy = make_replica(setting.options.model, setting.options.seed, setting.compute.layout);
  copy_values(trained.parameters, copy.parameters);
  copy_values(trained.buffers, copy.buffers);
  return copy;
}

/// One window on this rank.
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
        waiting_(exchange.waiting()),
        next_iteration_(std::max(trained.iterations, kWarmup)) {}

  Measured run(Kind kind) { return kind == kCommunicationOnly ? communication() : training(kind); }

 private:
  std::unique_ptr<SyncMode> make_mode(Kind kind) {
    const SyncSettings settings = sync_settings(setting_.options);
    if (kind == kComputeOnly) return make_sync_mode("none", exchange_, settings);
    if (kind != kSerial) return make_sync_mode(setting_.options.sync, exchange_, settings);
    return replay();
  }

  std::unique_ptr<Replay> replay() {
    const bool wired = setting_.options.sync == "ddp";
    return std::make_unique<Replay>(exchange_, trained_.buckets, waiting_,
                                    wired ? setting_.options.wire_dtype : "fp32");
  }

  Measured communication() {
    const auto mode = replay();
    const std::int64_t iterations = setting_.options.counterfactual;
    for (std::int64_t i = 0; i < kWarmup; ++i)
      exchange_once(*mode);
    meet();
    double busy_s = 0;
    const Stopwatch watch;
    for (std::int64_t i = 0; i < iterations; ++i)
      busy_s += exchange_once(*mode);
    const double wall_s = watch.elapsed_s();
    const auto n = static_cast<double>(iterations);
    return {{wall_s / n, kNotMeasured, busy_s / n, busy_s / n}, iterations};
  }

  /// Seconds inside its collectives, which follow each other.
  double exchange_once(Replay& mode) {
    exchange_.begin_iteration(next_iteration_++);
    mode.synchronize();
    double busy_s = 0;
    for (const CollectiveRecord& record : exchange_.records())
      busy_s += record.end_s - record.start_s;
    return busy_s;
  }

  Measured training(Kind kind) {
    Replica replica = copy_of(trained_.replica, setting_);
    GradientGuard guard(replica);
    const auto mode = make_mode(kind);
    mode->attach(replica);
    const TrainOptions& options = setting_.options;
    // The serial window replays the statistics' collectives with the others.
    const bool own_norms = kind == kComputeOnly || kind == kSerial;
    NormExchange norms(own_norms ? "local" : options.batch_norm, exchange_, *mode, replica);
    const auto optimizer = make_optimizer(replica, options.optimizer);
    Feed feed(setting_.data, setting_.options, setting_.compute.layout, exchange_.rank(),
              exchange_.size(), feed_share(*mode, exchange_.rank()));
    feed.begin_epoch(0);
    StepParts parts{replica,
                    *mode,
                    *optimizer,
                    feed,
                    guard,
                    exchange_,
                    setting_.compute,
                    options.accumulate,
                    &norms,
                    options.clip_norm,
                    options.label_smoothing};
    return iterate(parts, kind);
  }

  Measured iterate(StepParts& parts, Kind kind) {
    const std::int64_t per_epoch = parts.feed.iterations_of(0);
    // As many as asked for, or as an epoch has after the warm-up.
    const std::int64_t iterations =
        std::clamp<std::int64_t>(per_epoch - kWarmup, 1, setting_.options.counterfactual);
    const std::int64_t warmup = std::clamp<std::int64_t>(per_epoch - iterations, 0, kWarmup);
    for (std::int64_t step = 0; step < warmup; ++step)
      run_step(parts, next_iteration_++, step, setting_.options.learning_rate.base);
    parts.measured = kind != kUnmeasured;
    exchange_.set_timing(parts.measured);
    meet();
    Sums sums;
    const Stopwatch watch;
    for (std::int64_t step = warmup; step < warmup + iterations; ++step)
      one_step(parts, step, sums);
    const double wall_s = watch.elapsed_s();
    exchange_.set_timing(true);
    return {sums.per_iteration(wall_s, iterations), iterations};
  }

  /// As in training: the rows of all ranks meet on rank 0, unless nothing is measured.
  void one_step(StepParts& parts, std::int64_t step, Sums& sums) {
    const StepResult result =
        run_step(parts, next_iteration_++, step, setting_.options.learning_rate.base);
    sums.add(result.measured);
    if (!parts.measured) return;
    IterationRow row;
    gather_rows(exchange_, result, 0, row);
  }

  void meet() { MPI_Barrier(exchange_.session().world()); }

  Exchange& exchange_;
  const RunSetting& setting_;
  const TrainedState& trained_;
  Waiting waiting_;
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
  if (communicates && overlaps(mode)) kinds.push_back(kWindowKinds[kSerial]);
  kinds.push_back(kWindowKinds[kOverlapped]);
  kinds.push_back(kWindowKinds[kUnmeasured]);
  return kinds;
}

std::vector<WindowRow> run_windows(Exchange& exchange, const RunSetting& setting,
                                   const TrainedState& trained) {
  const auto kinds =
      window_kinds(setting.options.sync, exchange.size() > 1 && !trained.buckets.empty());
  Windows windows(exchange, setting, trained);
  std::vector<WindowRow> rows;
  for (std::int64_t round = 0; round < setting.options.counterfactual_rounds; ++round)
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto name = kinds[(i + static_cast<std::size_t>(round)) % kinds.size()];
      if (trained.before_window) trained.before_window();
      const Measured mine = windows.run(kind_of(name));
      WindowRow row{std::string(name), round, mine.iterations, {}};
      if (exchange.rank() == 0) row.ranks.resize(static_cast<std::size_t>(exchange.size()));
      exchange.gather_control(std::as_bytes(std::span(&mine.rank, 1)),
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
