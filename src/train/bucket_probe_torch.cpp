#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/parse.h"
#include "options/modes.h"
#include "stats/bandwidth.h"
#include "stats/clock.h"
#include "stats/statistics.h"
#include "sync/flat_gradients.h"
#include "sync/gradient_buckets.h"
#include "train/bucket_probe.h"
#include "train/step.h"
#include "train/verify_modes.h"

namespace gradsync {

namespace {

constexpr std::int64_t kWarmupSteps = 2, kSteps = 5;
constexpr int kRepeats = 4;  ///< of an all-reduce, the first of which does not count
constexpr std::int64_t kSmallestMessage = 16 << 10, kMessageFactor = 8;

bool uses_buckets(const TrainOptions& options) {
  return mode_named(options.sync).overlaps && options.overlap == "backward";
}

/// When the gradients of a backward pass are ready, by parameter: medians over some steps, of the
/// slowest rank, since the first gradient of the pass.
class ReadyTimes {
 public:
  ReadyTimes(Exchange& exchange, const DataSource& data, const ComputeSettings& compute,
             const TrainOptions& options)
      : exchange_(exchange),
        replica_(make_replica(options.model, options.seed, compute.layout, compute.device)),
        guard_(replica_, exchange),
        mode_(make_sync_mode(kNoExchange, exchange, {})),
        optimizer_(make_optimizer(replica_, options.optimizer)),
        feed_(data, options, compute.layout, exchange.session().rank(), exchange.session().size(),
              FeedShare::kOwn),
        parts_{replica_, *mode_, *optimizer_, feed_, guard_, exchange, compute},
        stamp_s_(replica_.parameters.size()),
        since_first_s_(replica_.parameters.size()),
        hooks_(replica_.parameters, [this](std::size_t p) { stamp_s_[p] = now_s(); }) {
    mode_->attach(replica_);
    feed_.begin_epoch(0);
  }

  GradientTimeline measure() {
    const std::int64_t steps = std::min(kWarmupSteps + kSteps, feed_.iterations_of(0));
    for (std::int64_t step = 0; step < steps; ++step) {
      run_step(parts_, step, step, /*learning_rate=*/0);
      if (step >= std::min(kWarmupSteps, steps - 1)) note();
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
    exchange_.session().max(ready_s);  // the slowest rank's
    auto order = module_order(ready_s.size());
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ready_s[a] < ready_s[b]; });
    GradientTimeline timeline;
    for (const std::size_t p : order) {
      timeline.bytes.push_back(replica_.parameters[p].numel() *
                               static_cast<std::int64_t>(sizeof(float)));
      timeline.ready_s.push_back(ready_s[p]);
    }
    return timeline;
  }

  Exchange& exchange_;
  Replica replica_;
  GradientGuard guard_;
  std::unique_ptr<SyncMode> mode_;
  std::unique_ptr<Optimizer> optimizer_;
  Feed feed_;
  StepParts parts_;
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
        data_(zeros_in(exchange.allocate(static_cast<std::size_t>(gradient_bytes)),
                       gradient_bytes / static_cast<std::int64_t>(sizeof(float)), torch::kCPU)) {}

  AlphaBeta measure() {
    const bool before = exchange_.set_overlaps(true);
    std::vector<double> bytes, times_s;
    for (std::int64_t size = kSmallestMessage; size < largest_bytes_; size *= kMessageFactor)
      bytes.push_back(static_cast<double>(size));
    bytes.push_back(static_cast<double>(largest_bytes_));
    for (const double size : bytes)
      times_s.push_back(median_time_s(static_cast<std::size_t>(size)));
    exchange_.set_overlaps(before);
    exchange_.session().max(times_s);
    return fit_alpha_beta(bytes, times_s);
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

AllReduceTime as_time(const AlphaBeta& law) {
  return
      [law](std::int64_t bytes) { return std::max(0.0, law.time_s(static_cast<double>(bytes))); };
}

std::vector<std::int64_t> sizes_for(std::int64_t given, std::int64_t gradient_bytes) {
  return given > 0 ? std::vector<std::int64_t>{given} : bucket_ladder(gradient_bytes);
}

BucketChoice probe(Exchange& exchange, const DataSource& data, const ComputeSettings& compute,
                   const TrainOptions& options) {
  const Stopwatch watch;
  const GradientTimeline gradients = ReadyTimes(exchange, data, compute, options).measure();
  const auto all_bytes =
      std::accumulate(gradients.bytes.begin(), gradients.bytes.end(), std::int64_t{0});
  const std::string wire = mode_named(options.sync).casts ? options.wire_dtype : "fp32";
  const AlphaBeta law = MessageTimes(exchange, all_bytes, wire).measure();
  const AllReduceTime time_s = as_time(law);
  BucketChoice choice;
  choice.chosen = best_buckets(gradients, time_s, sizes_for(options.first_bucket_bytes, all_bytes),
                               sizes_for(options.bucket_cap_bytes, all_bytes));
  choice.as_default =
      advice_of(gradients, time_s, kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
  choice.latency_s = law.alpha_s;
  choice.bandwidth_bytes_per_s = 1 / law.beta_s_per_byte;
  choice.probe_s = watch.elapsed_s();
  return choice;
}

}  // namespace

std::optional<BucketChoice> settle_buckets(Exchange& exchange, const DataSource& data,
                                           const ComputeSettings& compute, TrainOptions& options) {
  if (options.first_bucket_bytes > 0 && options.bucket_cap_bytes > 0) return std::nullopt;
  if (!uses_buckets(options) || exchange.session().size() == 1) {
    if (options.first_bucket_bytes == 0) options.first_bucket_bytes = kDefaultFirstBucketBytes;
    if (options.bucket_cap_bytes == 0) options.bucket_cap_bytes = kDefaultBucketCapBytes;
    return std::nullopt;
  }
  if (exchange.lane())
    throw Error(ExitCode::kUsage, "--bucket-cap auto measures ranks on CPUs, and these are on GPUs",
                "give sizes; after a run, table what-if of gradsync-report names the best cap");
  const WatchdogTimeoutExtension measures(exchange.session().watchdog(),
                                          WatchedPhase::kCalibration);
  const BucketChoice choice = probe(exchange, data, compute, options);
  options.first_bucket_bytes = choice.chosen.first_bucket_bytes;
  options.bucket_cap_bytes = choice.chosen.bucket_cap_bytes;
  return choice;
}

std::string bucket_text(const BucketChoice& choice) {
  return fmt::format(
      "bucket cap auto: {}, the first {} ({} buckets), predicted to expose {:.2f} ms of a step's "
      "exchange; 25MiB, the first 1MiB ({}): {:.2f} ms (all-reduce {:.1f} us + bytes / {:.2f} "
      "GB/s; "
      "probed in {:.1f} s)",
      format_bytes(choice.chosen.bucket_cap_bytes), format_bytes(choice.chosen.first_bucket_bytes),
      choice.chosen.buckets, 1e3 * choice.chosen.exposed_s, choice.as_default.buckets,
      1e3 * choice.as_default.exposed_s, 1e6 * choice.latency_s,
      1e-9 * choice.bandwidth_bytes_per_s, choice.probe_s);
}

}  // namespace gradsync
