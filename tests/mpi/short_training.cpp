// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/short_training.h"

#include "comm/watchdog.h"
#include "data/cifar10.h"
#include "train/pipeline.h"

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

torch::Tensor StandInGraph::record(const Work& work) {
  const torch::Tensor sums = work();
  if (fails) throw Error(ExitCode::kInternal, "operation not permitted");
  return sums;
}

DataSource resident(const Cifar10& data) {
  return {data, std::make_shared<ResidentData>(data, torch::kCPU, ImageType::kFloat32)};
}

Trained train_shortly(Exchange& exchange, const DataSource& data, const TrainOptions& options,
                      std::int64_t iterations, const torch::Device& device, const AtStart& at_start,
                      StepGraph* graph) {
  ComputeSettings compute;
  compute.device = device;
  DataSource source = data;
  source.device = device;
  source.lane = exchange.lane();
  RankTraining training(exchange, make_replica(options.model, options.seed, compute.layout, device),
                        source, compute, options);
  training.graph = graph;
  Pipeline pipeline(exchange, training.replica, /*clock_offset_s=*/0);
  Trained trained;
  const auto finish = [&] { trained.iterations.push_back(pipeline.finish_first()); };
  training.feed.begin_epoch(0);
  pipeline.anchor();
  const std::int64_t last = std::min(iterations, training.feed.iterations_of(0));
  for (std::int64_t i = 0; i < last; ++i) {
    if (at_start) at_start(training.guard, i);
    training.completes = i + 1 == last || DeferredUpdates::completes_after(i + 1);
    {
      const LaunchScope launches(&exchange.session().watchdog(), /*in_data=*/true);
      pipeline.push(start_iteration(training, i, i, 0.02));
    }
    while (pipeline.full() && !training.defers())
      finish();
  }
  while (!pipeline.empty())
    finish();
  training.mode->publish();
  trained.parameters = flat_parameters(training.replica);
  trained.hash = parameter_hash(training.replica);
  return trained;
}

}  // namespace gradsync::test
