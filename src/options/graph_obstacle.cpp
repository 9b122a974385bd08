#include "options/graph_obstacle.h"

#include "options/modes.h"

namespace gradsync {

std::string graph_obstacle(const TrainOptions& options) {
  if (options.device != "cuda") return "--device cpu: graphs are of GPUs";
  if (options.transport != "nccl")
    return "--transport " + options.transport + ": the host moves the data";
  if (options.feed == "loader") return "--feed loader: the host makes the batches";
  if (!mode_named(options.sync).capturable)
    return "--sync " + options.sync + ": the host takes part in each step";
  if (options.verify == "all") return "--verify all: the host compares each call";
  if (!options.batch_schedule.empty()) return "--batch-schedule: batches change their size";
  if (!options.inject_fault.empty()) return "--inject-fault: a replayed step does not ask for it";
  return {};
}

}  // namespace gradsync
