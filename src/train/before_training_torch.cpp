// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "base/parse.h"
#include "comm/session.h"
#include "options/modes.h"
#include "stats/bandwidth.h"
#include "stats/clock.h"
#include "stats/statistics.h"
#include "sync/flat_gradients.h"
#include "sync/gradient_buckets.h"
#include "train/before_training.h"
#include "train/iteration.h"

namespace gradsync {

namespace {

constexpr std::int64_t kIterations = 3;
constexpr std::int64_t kMostImagesPerRank = 32;
constexpr double kLearningRate = 0.02;
const std::string kReference = "allreduce";

/// Largest |a − b| a parameter may differ by after kIterations: sums over ranks are taken in
/// another order, and reduced precision rounds each differently.
double tolerance_of(const TrainOptions& options, const ComputeSettings& compute) {
  if (compute.precision != Precision::kFp32) return 2e-2;
  return options.wire_dtype == "fp32" ? 5e-4 : 1e-2;
}

/// The options for a trial: gradients as the backward pass gives them, nothing else that ranks
/// exchange.
TrainOptions without_extras(const TrainOptions& options) {
  TrainOptions plain = options;
  plain.batch_norm = BatchNormMode::kLocal;
  plain.clip_norm = 0;
  plain.label_smoothing = 0;
  return plain;
}

/// Parameters after a few iterations in one mode.
struct Outcome {
  torch::Tensor parameters;
  std::string hash;
  bool ranks_equal = false;
};

Outcome train_briefly(const std::string& name, Exchange& exchange, const DataSource& data,
                      const TrainOptions& brief, const ComputeSettings& compute) {
  TrainOptions options = brief;
  options.sync = name;
  RankTraining training(exchange,
                        make_replica(options.model, options.seed, compute.layout, compute.device),
                        data, compute, options);
  training.feed.begin_epoch(0);
  const std::int64_t iterations = std::min(kIterations, training.feed.iterations_of(0));
  for (std::int64_t i = 0; i < iterations; ++i) {
    training.completes = i + 1 == iterations;
    start_iteration(training, i, i, kLearningRate);
    // Behind a rank that is gone, launches of a few iterations would fill the device's queue.
    exchange.await(exchange.now().mark);
  }
  // Where each rank has a network of its own, publishing would make them the same.
  if (!mode_named(name).local) training.mode->publish();
  exchange.await(exchange.now().mark);
  Outcome outcome{flat_parameters(training.replica), parameter_hash(training.replica), false};
  outcome.ranks_equal = exchange.session().equal(std::stoull(outcome.hash, nullptr, 16));
  return outcome;
}

/// Largest over all ranks; NaN anywhere stays NaN, which no tolerance accepts.
double largest_difference(Exchange& exchange, const torch::Tensor& a, const torch::Tensor& b) {
  double mine = (a - b).abs().max().item<double>();
  if (!std::isfinite(mine)) mine = std::numeric_limits<double>::infinity();
  return exchange.session().max(mine);
}

}  // namespace

std::vector<VerificationRow> verify_modes(Exchange& exchange, const DataSource& data,
                                          const TrainOptions& options,
                                          const ComputeSettings& compute) {
  TrainOptions brief = without_extras(options);
  brief.batch_schedule = {};
  // What is verified is the exchange: an optimizer that scales by small numbers would blur it.
  brief.optimizer.name = "sgd";
  brief.local_steps = 1;
  brief.local_start = 0;
  brief.outer_nesterov = false;
  // A TorchScript module may take no other batch.
  if (!is_script(options.model))
    brief.batch_per_rank = std::min(options.batch_per_rank, kMostImagesPerRank);
  const Outcome reference = train_briefly(kReference, exchange, data, brief, compute);
  std::vector<VerificationRow> rows;
  for (const Mode& mode : kModes) {
    // Refused by the options: they would carry over what overflows.
    if (brief.optimizer.scales_loss && !mode.changes.empty()) continue;
    const std::string name(mode.name);
    const Outcome outcome =
        name == kReference ? reference : train_briefly(name, exchange, data, brief, compute);
    VerificationRow row;
    row.mode = name;
    row.ranks_equal = outcome.ranks_equal;
    row.difference = largest_difference(exchange, outcome.parameters, reference.parameters);
    row.tolerance = tolerance_of(options, compute);
    row.parameter_hash = outcome.hash;
    const bool agrees = row.ranks_equal && row.difference <= row.tolerance;
    const bool must_differ = !mode.exchanges && exchange.session().size() > 1;
    row.passed = !mode.changes.empty() ? row.ranks_equal : must_differ ? !agrees : agrees;
    rows.push_back(row);
  }
  return rows;
}

Table verification_table(const std::vector<VerificationRow>& rows) {
  Table table{
      "verification", "Modes compared after 3 iterations (reference: allreduce)", {}, {}, {}};
  table.columns = {{"mode", "mode", true},           {"ranks_equal", "ranks equal", true},
                   {"difference", "difference"},     {"tolerance", "tolerance"},
                   {"hash", "parameter hash", true}, {"result", "result", true}};
  for (const VerificationRow& row : rows)
    table.add({row.mode, row.ranks_equal ? "yes" : "no", fmt::format("{:.2e}", row.difference),
               fmt::format("{:.0e}", row.tolerance), row.parameter_hash,
               row.passed ? "ok" : "FAILED"});
  table.notes = {
      "difference: largest |a - b| over all parameters, which has to be within the tolerance, with "
      "equal ranks; on several ranks mode none has to fail that, and modes that step by other "
      "gradients need equal ranks only"};
  return table;
}

namespace {

constexpr std::int64_t kWarmupIterations = 2, kTimedIterations = 5;
constexpr int kRepeats = 4;  ///< of an all-reduce, the first of which does not count
constexpr std::int64_t kSmallestMessage = 16 << 10, kMessageFactor = 8;

/// The times at which the gradients of a backward pass are ready, by parameter: medians over some
/// steps, of the slowest rank, since the first gradient of the pass.
class ReadyTimes {
 public:
  ReadyTimes(Exchange& exchange, const DataSource& data, const ComputeSettings& compute,
             const TrainOptions& options)
      : options_([&] {
          TrainOptions alone = without_extras(options);
          alone.sync = kNoExchange;
          return alone;
        }()),
        training_(exchange,
                  make_replica(options.model, options.seed, compute.layout, compute.device), data,
                  compute, options_),
        stamp_s_(training_.replica.parameters.size()),
        since_first_s_(stamp_s_.size()),
        hooks_(training_.replica.parameters, [this](std::size_t p) { stamp_s_[p] = now_s(); }) {
    training_.feed.begin_epoch(0);
  }

  GradientTimeline measure() {
    const std::int64_t steps =
        std::min(kWarmupIterations + kTimedIterations, training_.feed.iterations_of(0));
    for (std::int64_t step = 0; step < steps; ++step) {
      start_iteration(training_, step, step, /*learning_rate=*/0);
      if (step >= std::min(kWarmupIterations, steps - 1)) note();
    }
    return timeline();
  }

 private:
  void note() {
    const double first_s = *std::min_element(stamp_s_.begin(), stamp_s_.end());
    for (std::size_t p = 0; p < stamp_s_.size(); ++p)
      since_first_s_[p].push_back(stamp_s_[p] - first_s);
  }

  GradientTimeline timeline() const {
    std::vector<double> ready_s;
    for (const auto& times_s : since_first_s_)
      ready_s.push_back(median(times_s));
    training_.exchange.session().max(ready_s);  // of the slowest rank
    auto order = module_order(ready_s.size());
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ready_s[a] < ready_s[b]; });
    GradientTimeline timeline;
    for (const std::size_t p : order) {
      timeline.bytes.push_back(training_.replica.parameters[p].numel() *
                               static_cast<std::int64_t>(sizeof(float)));
      timeline.ready_s.push_back(ready_s[p]);
    }
    return timeline;
  }

  TrainOptions options_;
  RankTraining training_;
  std::vector<double> stamp_s_;
  std::vector<std::vector<double>> since_first_s_;
  GradientHooks hooks_;
};

/// All-reduces of messages up to that of all gradients, as a communication thread does them.
class MessageTimes {
 public:
  MessageTimes(Exchange& exchange, std::int64_t gradient_bytes, const std::string& wire_dtype)
      : exchange_(exchange),
        largest_bytes_(gradient_bytes),
        wire_(wire_type(wire_dtype)),
        data_(zeros_in(exchange, gradient_bytes / static_cast<std::int64_t>(sizeof(float)),
                       torch::kCPU)) {}

  struct Times {
    std::vector<double> bytes, times_s;
  };

  Times measure() {
    const bool before = exchange_.set_overlaps(true);
    std::vector<double> bytes, times_s;
    for (std::int64_t size = kSmallestMessage; size < largest_bytes_; size *= kMessageFactor)
      bytes.push_back(static_cast<double>(size));
    bytes.push_back(static_cast<double>(largest_bytes_));
    for (const double size : bytes)
      times_s.push_back(median_time_s(static_cast<std::size_t>(size)));
    exchange_.set_overlaps(before);
    exchange_.session().max(times_s);
    return {bytes, times_s};
  }

 private:
  double median_time_s(std::size_t bytes) {
    std::vector<double> times_s;
    for (int i = 0; i < kRepeats; ++i) {
      const double begin_s = now_s();
      all_reduce(bytes / sizeof(float));
      if (i > 0) times_s.push_back(now_s() - begin_s);
    }
    return median(times_s);
  }

  void all_reduce(std::size_t values) {
    Collective mean = Collective::all_reduce({data_.data_ptr<float>(), values}, Scale::kAverage);
    mean.wire = wire_;
    exchange_.run(mean, Traffic::kControl);
  }

  Exchange& exchange_;
  std::int64_t largest_bytes_;
  ValueType wire_;
  torch::Tensor data_;
};

}  // namespace

GradientTimeline gradient_timeline(Exchange& exchange, const DataSource& data,
                                   const ComputeSettings& compute, const TrainOptions& options) {
  return ReadyTimes(exchange, data, compute, options).measure();
}

AllReduceTime all_reduce_time(Exchange& exchange, std::int64_t largest_bytes,
                              const std::string& wire_dtype) {
  const auto [bytes, times_s] = MessageTimes(exchange, largest_bytes, wire_dtype).measure();
  return [bytes = bytes, times_s = times_s](std::int64_t size) {
    const auto s = static_cast<double>(size);
    const auto above = std::upper_bound(bytes.begin(), bytes.end(), s);
    if (above == bytes.begin()) return times_s.front();
    const auto i = static_cast<std::size_t>(above - bytes.begin());
    if (i == bytes.size()) return times_s.back() * s / bytes.back();
    return times_s[i - 1] +
           (times_s[i] - times_s[i - 1]) * (s - bytes[i - 1]) / (bytes[i] - bytes[i - 1]);
  };
}

}  // namespace gradsync
