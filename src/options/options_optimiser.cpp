#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options/option_groups.h"

namespace gradsync {

namespace {

const std::vector<std::string> kBatchNorms = {"local", "broadcast", "sync"};

/// `name` from `low` to below 1.
double below_one(const OptionValues& values, const std::string& name, double low,
                 const std::string& why) {
  const double value = number_option(values, name, low, 1);
  if (value < 1) return value;
  throw option_error(values, name, "1 " + why,
                     fmt::format("give a number from {} to below 1", low));
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "lars", "lamb", "adam"};
  return names;
}

TrainOptionTable optimiser_options() {
  using enum OptionRole;
  const std::string group = "Optimiser";
  return {
      {kStep, "optimizer", fmt::format("{}", fmt::join(optimizer_names(), "|")), "sgd",
       "how gradients become a step; lars and lamb scale it layer by layer, biases and batch norms "
       "left out",
       group},
      {kTraining, "lr", "X", "0.1", "learning rate, 0 to 1000", group},
      {kStep, "momentum", "X", "0.9", "sgd and lars: momentum, 0 to below 1", group},
      {kStep, "nesterov", "", "false", "sgd: Nesterov's momentum", group},
      {kStep, "weight-decay", "X", "5e-4", "weight decay, 0 to 1", group},
      {kTraining, "trust-coefficient", "X", "0.001",
       "lars: a layer's step over the norm of its weights, 0 to 1", group},
      {kTraining, "beta1", "X", "0.9", "adam and lamb: decay of the first moment, 0 to below 1",
       group},
      {kTraining, "beta2", "X", "0.999", "adam and lamb: decay of the second moment, 0 to below 1",
       group},
      {kTraining, "epsilon", "X", "1e-8",
       "adam and lamb: added to the root of the second moment, 0 to 1", group},
      {kStep, "clip-norm", "X", "0",
       "scale the averaged gradient down to this norm, 0 (never) to 1000000", group},
      {kStep, "label-smoothing", "X", "0",
       "share of the target spread over all classes, 0 to below 1", group},
      {kBetweenRanks, "batch-norm", fmt::format("{}", fmt::join(kBatchNorms, "|")), "local",
       "statistics of each rank's images (local), the same with rank 0's running means handed to "
       "all before each step (broadcast), or of all ranks' images together (sync)",
       group},
  };
}

void read_optimiser(const OptionValues& values, TrainOptions& options) {
  OptimizerSettings& optimizer = options.optimizer;
  optimizer.name = choice_option(values, "optimizer", optimizer_names());
  optimizer.momentum = below_one(values, "momentum", 0, "would never forget a gradient");
  optimizer.nesterov = switch_option(values, "nesterov");
  if (optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0))
    throw option_error(values, "nesterov", "it is a form of sgd's momentum",
                       "give --optimizer sgd and a --momentum above 0");
  optimizer.weight_decay = number_option(values, "weight-decay", 0, 1);
  optimizer.trust_coefficient = number_option(values, "trust-coefficient", 0, 1);
  optimizer.beta1 = below_one(values, "beta1", 0, "would never take a gradient in");
  optimizer.beta2 = below_one(values, "beta2", 0, "would never take a gradient in");
  optimizer.epsilon = number_option(values, "epsilon", 0, 1);
  options.clip_norm = number_option(values, "clip-norm", 0, 1e6);
  options.label_smoothing =
      below_one(values, "label-smoothing", 0, "would leave nothing of the labels");
  options.batch_norm = choice_option(values, "batch-norm", kBatchNorms);
  if (options.batch_norm != "local" && options.sync == "none")
    throw option_error(values, "batch-norm",
                       options.batch_norm + ", and ranks of --sync none exchange nothing",
                       "give a mode that exchanges, or --batch-norm local");
}

}  // namespace gradsync
