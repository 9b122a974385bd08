#include <algorithm>

#include <fmt/ranges.h>

#include "options/option_groups.h"

namespace gradsync {

namespace {

const std::vector<std::string> kInits = {"equal", "broadcast", "per-rank"};
const std::vector<std::string> kExchanges = {"all", "gradients"};

/// What would have to travel besides gradients.
void require_gradients_alone(const OptionValues& values, const TrainOptions& options) {
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    throw option_error(values, "sync-only", "gradients alone do not do: " + why, fix);
  };
  if (options.sync == "none") refuse("--sync none exchanges nothing", "choose another --sync");
  if (options.sync == "data-parallel")
    refuse("--sync data-parallel moves images, outputs and parameters", "choose another --sync");
  if (options.batch_norm != "local")
    refuse(fmt::format("--batch-norm {} moves batch-norm statistics", options.batch_norm),
           "--batch-norm local");
}

}  // namespace

TrainOptionTable replica_options() {
  using enum OptionRole;
  const std::string group = "Replicas";
  return {
      {kTraining, "init", joined(kInits), "equal",
       "the weights at the start: drawn from one seed on all ranks (equal), or from a seed for "
       "each "
       "rank and then handed out by rank 0 (broadcast) or left different (per-rank)",
       group},
      {kBetweenRanks, "sync-only", joined(kExchanges), "all",
       "gradients: nothing else is exchanged to train; each rank keeps its batch-norm statistics "
       "and "
       "tests its own network",
       group},
  };
}

void read_replicas(const OptionValues& values, TrainOptions& options) {
  options.init = choice_option(values, "init", kInits);
  options.gradients_only = choice_option(values, "sync-only", kExchanges) == "gradients";
  if (options.gradients_only) require_gradients_alone(values, options);
}

}  // namespace gradsync
