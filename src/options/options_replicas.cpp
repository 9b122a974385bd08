#include <fmt/format.h>

#include "options/modes.h"
#include "options/option_groups.h"

namespace gradsync {

TrainOptionTable replica_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  return {
      {kTraining, "init", Value::enumerated<Init>(&O::init, {"equal", "broadcast", "per-rank"}),
       "initial weights: drawn from one seed on all ranks (equal), or from one seed per rank and "
       "then broadcast from rank 0 (broadcast) or left different (per-rank)"},
      {kBetweenRanks, "sync-only", Value::either("all", "gradients", &O::gradients_only),
       "gradients: nothing else is exchanged to train; each rank keeps its batch-norm statistics "
       "and evaluates its own network"},
  };
}

// Refuses what would have to travel besides gradients.
void require_gradients_suffice(const OptionValues& values, const TrainOptions& options) {
  if (!options.gradients_only) return;
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    throw option_error(values, "sync-only", "gradients alone are not enough: " + why, fix);
  };
  if (!mode_named(options.sync).exchanges)
    refuse(fmt::format("--sync {} exchanges nothing", options.sync), "choose another --sync");
  if (mode_named(options.sync).root_only)
    refuse(fmt::format("--sync {} moves images, outputs and parameters", options.sync),
           "choose another --sync");
  if (options.batch_norm != BatchNormMode::kLocal)
    refuse(fmt::format("--batch-norm {} moves batch-norm statistics",
                       batch_norm_name(options.batch_norm)),
           "--batch-norm local");
}

}  // namespace gradsync
