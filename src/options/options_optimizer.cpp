#include <fmt/format.h>

#include "options/modes.h"
#include "options/option_groups.h"

namespace gradsync {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {
#define GRADSYNC_OPTIMIZER(name) #name,
#include "options/optimizers.def"
#undef GRADSYNC_OPTIMIZER
  };
  return names;
}

TrainOptionTable optimizer_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  using S = OptimizerSettings;
  const auto member = [](auto place) { return part_of(&O::optimizer, place); };
  return {
      {kStep, "optimizer", Value::choice(member(&S::name), optimizer_names()),
       "update rule; lars and lamb scale it layer by layer, except biases and batch norms"},
      {kTraining, "lr",
       Value::number(part_of(&O::learning_rate, &LearningRateSettings::base), 0, 1e3),
       "learning rate"},
      {kStep, "momentum", Value::fraction(member(&S::momentum)), "sgd and lars: momentum"},
      {kStep, "nesterov", Value::on_off(member(&S::nesterov)), "sgd: Nesterov momentum"},
      {kStep, "weight-decay", Value::number(member(&S::weight_decay), 0, 1), "weight decay"},
      {kTraining, "trust-coefficient", Value::number(member(&S::trust_coefficient), 0, 1),
       "lars: ratio of a layer's update norm to its weight norm"},
      {kTraining, "beta1", Value::fraction(member(&S::beta1)),
       "adam and lamb: decay of the first moment"},
      {kTraining, "beta2", Value::fraction(member(&S::beta2)),
       "adam and lamb: decay of the second moment"},
      {kTraining, "epsilon", Value::number(member(&S::epsilon), 0, 1),
       "adam and lamb: added to the root of the second moment"},
      {kStep, "clip-norm", Value::number(&O::clip_norm, 0, 1e6, "never"),
       "scale the averaged gradient down to this norm"},
      {kStep, "label-smoothing", Value::fraction(&O::label_smoothing),
       "share of the target spread over all classes"},
      {kBetweenRanks, "batch-norm",
       Value::enumerated<BatchNormMode>(&O::batch_norm, batch_norm_names()),
       "statistics of each rank's images (local), the same with the running means of rank 0 "
       "broadcast before each iteration (broadcast), or of all ranks' images together (sync)"},
  };
}

void require_optimizer_possible(const OptionValues& values, const TrainOptions& options) {
  const OptimizerSettings& optimizer = options.optimizer;
  if (optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0))
    throw option_error(values, "nesterov", "it is a form of sgd's momentum",
                       "give --optimizer sgd and a --momentum above 0");
  if (options.batch_norm != BatchNormMode::kLocal && !mode_named(options.sync).exchanges)
    throw option_error(values, "batch-norm",
                       fmt::format("{}, and ranks of --sync {} exchange nothing",
                                   batch_norm_name(options.batch_norm), options.sync),
                       "give a mode that exchanges, or --batch-norm local");
}

}  // namespace gradsync
