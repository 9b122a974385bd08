#include <cmath>
#include <map>

#include "options/modes.h"
#include "train/evaluate.h"
#include "train/verify_modes.h"

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

/// Parameters after a few iterations in one mode.
struct Outcome {
  torch::Tensor parameters;
  std::string hash;
  bool ranks_equal = false;
};

Outcome train_briefly(const std::string& name, Exchange& exchange, const DataSource& data,
                      const TrainOptions& options, const ComputeSettings& compute) {
  Replica replica = make_replica(options.model, options.seed, compute.layout, compute.device);
  GradientGuard guard(replica, exchange);
  const auto mode = make_sync_mode(name, exchange, sync_settings(options));
  mode->attach(replica);
  // What is verified is the exchange: an optimizer that scales by small numbers would blur it.
  OptimizerSettings plain = options.optimizer;
  plain.name = "sgd";
  const auto optimizer = make_optimizer(replica, plain);
  Feed feed(data, options, compute.layout, exchange.session().rank(), exchange.session().size(),
            feed_share(*mode, exchange.session().rank()));
  StepParts parts{replica, *mode, *optimizer, feed, guard, exchange, compute};
  const auto deferred = deferred_updates(replica, *mode, *optimizer);
  parts.deferred = deferred.get();
  feed.begin_epoch(0);
  const std::int64_t iterations = std::min(kIterations, feed.iterations_of(0));
  for (std::int64_t i = 0; i < iterations; ++i) {
    parts.completes = i + 1 == iterations;
    run_step(parts, i, i, kLearningRate);
  }
  mode->publish();
  exchange.await(exchange.now().mark);
  Outcome outcome{flat_parameters(replica), parameter_hash(replica), false};
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
  TrainOptions brief = options;
  brief.batch_schedule = {};
  // A TorchScript module may take no other batch.
  if (!is_script(options.model))
    brief.batch_per_rank = std::min(options.batch_per_rank, kMostImagesPerRank);
  const Outcome reference = train_briefly(kReference, exchange, data, brief, compute);
  std::vector<VerificationRow> rows;
  for (const Mode& mode : kModes) {
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
    row.passed = must_differ ? !agrees : agrees;
    rows.push_back(row);
  }
  return rows;
}

SyncSettings sync_settings(const TrainOptions& options) {
  return {options.granularity, options.first_bucket_bytes, options.bucket_cap_bytes,
          options.wire_dtype, options.overlap == "step"};
}

FeedShare feed_share(SyncMode& mode, int rank) {
  if (!mode.root_loss()) return FeedShare::kOwn;
  return rank == 0 ? FeedShare::kAllRanks : FeedShare::kNone;
}

}  // namespace gradsync
