#include "mpi/short_training.h"

#include "data/synthetic.h"
#include "train/pipeline.h"
#include "train/verify_modes.h"

namespace gradsync::test {

SmallSet::SmallSet() {
  if (session().root()) synthesize(folder.path() / "set", 1, kImages, 20);
  MPI_Barrier(session().world());
  data.emplace(folder.path() / "set");
}

TrainOptions short_options(const std::string& mode) {
  TrainOptions options;
  options.sync = mode;
  options.model = "lenet";
  options.batch_per_rank = 4;
  options.first_bucket_bytes = 2048;
  options.bucket_cap_bytes = 40000;
  return options;
}

Trained train_shortly(Exchange& exchange, const DataSource& data, const TrainOptions& options,
                      std::int64_t iterations, const torch::Device& device, const AtStart& at_start,
                      StepGraph* graph) {
  ComputeSettings compute;
  compute.device = device;
  Replica replica = make_replica(options.model, options.seed, compute.layout, device);
  GradientGuard guard(replica, exchange);
  const auto mode = make_sync_mode(options.sync, exchange, sync_settings(options));
  mode->attach(replica);
  const auto optimizer = make_optimizer(replica, options.optimizer);
  DataSource source = data;
  source.device = device;
  source.lane = exchange.lane();
  Feed feed(source, options, compute.layout, exchange.session().rank(), exchange.session().size(),
            feed_share(*mode, exchange.session().rank()));
  StepParts parts{replica, *mode, *optimizer, feed, guard, exchange, compute};
  parts.clip_norm = options.clip_norm;
  parts.graph = graph;
  const auto deferred = deferred_updates(replica, *mode, *optimizer);
  parts.deferred = deferred.get();
  Pipeline pipeline(exchange, replica, /*clock_offset_s=*/0);
  Trained trained;
  const auto finish = [&] {
    FinishedIteration finished = pipeline.finish_first();
    trained.iterations.push_back(finished.row.iteration);
    trained.steps.push_back(std::move(finished.result));
  };
  feed.begin_epoch(0);
  pipeline.anchor();
  const std::int64_t last = std::min(iterations, feed.iterations_of(0));
  for (std::int64_t i = 0; i < last; ++i) {
    if (at_start) at_start(guard, i);
    IterationRow row;
    row.iteration = i;
    parts.completes = i + 1 == last || DeferredUpdates::completes_after(i + 1);
    pipeline.push({row, run_step(parts, i, i, 0.02)});
    while (pipeline.full() && !parts.defers())
      finish();
  }
  while (!pipeline.empty())
    finish();
  mode->publish();
  trained.parameters = flat_parameters(replica);
  trained.hash = parameter_hash(replica);
  return trained;
}

}  // namespace gradsync::test
