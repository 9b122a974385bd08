#include "options/option_groups.h"

namespace gradsync {

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {
#define GRADSYNC_NETWORK(id, name) name,
#include "options/networks.def"
#undef GRADSYNC_NETWORK
  };
  return names;
}

TrainOptionTable model_and_data_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  return {
      {kStep, "model", Value::named("NAME", &O::model, model_names()), "network"},
      may_change({kFree, "data", Value::text_value(&O::data, "FOLDER"),
                  "folder with CIFAR-10's binary files"}),
      {kStep, "augment", Value::on_off(&O::augment), "crop and flip the training images at random"},
      {kTraining, "set-epoch", Value::on_off(&O::set_epoch),
       "shuffle differently in every epoch; off shows the effect of not doing so"},
      {kTraining, "last-batch", Value::choice(&O::last_batch, {"pad", "drop"}),
       "images left over at the end of an epoch: padded with the first ones (pad) or dropped"},
      {kStep, "feed", Value::choice(&O::feed, {"auto", "loader", "resident"}),
       "input pipeline: host threads (loader), or the data set resident on the device (resident); "
       "auto: resident on a GPU"},
      may_change({kStep, "loader-threads", Value::integer(&O::loader_threads, 1, 256),
                  "threads per rank that prepare batches"}),
      may_change({kStep, "prefetch", Value::integer(&O::prefetch, 1, 1024),
                  "batches per rank prepared ahead"}),
  };
}

}  // namespace gradsync
