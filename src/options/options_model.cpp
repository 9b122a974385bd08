#include "options/networks.h"
#include "options/option_groups.h"

namespace gradsync {

namespace {

using Value = BoundValue<TrainOptions>;
using O = TrainOptions;

/// The value, but for texts that `check` throws Error kUsage for.
template <typename Check>
Value checked(Value value, Check check) {
  value.read = [read = value.read, check](const OptionValues& values, const std::string& name,
                                          TrainOptions& options) {
    try {
      check(text_option(values, name));
    } catch (const Error& error) {
      throw option_error(values, name, error.what(), error.fix());
    }
    read(values, name, options);
  };
  return value;
}

Value network() {
  const Value named = Value::named("NAME", &O::model, model_names());
  Value value = checked(Value::text_value(&O::model, named.shown), require_network);
  value.range = named.range;
  for (const std::string& form : named.choices)
    if (form.find(':') == std::string::npos && !is_script(form)) value.choices.push_back(form);
  return value;
}

}  // namespace

TrainOptionTable model_and_data_options() {
  using enum OptionRole;
  constexpr std::int64_t kContext = 1024;  // positions of gpt2-small
  return {
      {kStep, "model", network(), "network"},
      {kStep, "sequence-length", Value::integer(&O::sequence_length, 1, kContext),
       "tokens of a sample of gpt2-small"},
      {kStep, "input", checked(Value::text_value(&O::input, "CxHxW"), image_sizes),
       "sample of --model FILE.pt: channels, height, width"},
      {kStep, "classes", Value::integer(&O::classes, 2, kMaxCount),
       "outputs of --model FILE.pt for a sample"},
      may_change({kFree, "data", Value::text_value(&O::data, "FOLDER"),
                  "folder with CIFAR-10's binary files"}),
      {kStep, "augment", Value::on_off(&O::augment), "crop and flip the training images at random"},
      {kTraining, "set-epoch", Value::on_off(&O::set_epoch),
       "shuffle differently in every epoch; off shows the effect of not doing so"},
      {kTraining, "last-batch", Value::enumerated<LastBatch>(&O::last_batch, {"pad", "drop"}),
       "images left over at the end of an epoch: padded with the first ones (pad) or dropped"},
      {kStep, "feed", Value::enumerated<FeedFrom>(&O::feed, {"auto", "loader", "resident"}),
       "input pipeline: host threads (loader), or the data set resident on the device (resident); "
       "auto: resident on a GPU"},
      may_change({kStep, "loader-threads", Value::integer(&O::loader_threads, 1, 256),
                  "threads per rank that prepare batches"}),
      may_change({kStep, "prefetch", Value::integer(&O::prefetch, 1, 1024),
                  "batches per rank prepared ahead"}),
  };
}

void require_network_possible(const OptionValues& values, const TrainOptions& options) {
  if (is_script(options.model) && options.batch_norm == BatchNormMode::kSync)
    throw option_error(values, "batch-norm",
                       "a TorchScript module keeps the batch norm it was written with",
                       "--batch-norm local or broadcast");
  if (options.target_accuracy > 0 && !network_input(options).cifar10)
    throw option_error(values, "target-accuracy",
                       "the samples of --model " + options.model + " have no test accuracy",
                       "leave it out");
}

}  // namespace gradsync
