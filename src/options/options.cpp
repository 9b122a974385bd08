#include "options/options.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "options/fault.h"
#include "options/option_groups.h"
#include "options/sizes.h"
#include "options/transport_choice.h"

namespace gradsync {

namespace {

constexpr std::int64_t kMaxCount = 1'000'000;
constexpr double kMaxTimeout_s = 7 * 24 * 3600;

const std::vector<std::string> kPrecisions = {"fp32", "bf16", "fp16", "auto"};
const std::vector<std::string> kDevices = {"auto", "cpu", "cuda"};
const std::vector<std::string> kFeeds = {"auto", "loader", "resident"};
const std::vector<std::string> kSwitch = {"off", "on"};
const std::vector<std::string> kLayouts = {"nchw", "nhwc", "auto"};
const std::vector<std::string> kLastBatches = {"pad", "drop"};
const std::vector<std::string> kEvaluations = {"shard", "each-rank", "none"};
const std::vector<std::string> kVerifications = {"off", "init", "all"};

TrainOptionTable model_and_data_options() {
  using enum OptionRole;
  const std::string group = "Network and data";
  return {
      {kStep, "model", "NAME", "resnet18",
       fmt::format("network: {}", fmt::join(model_names(), ", ")), group},
      {kFree, "data", "FOLDER", "data/cifar-10", "folder with CIFAR-10's binary files", group},
      {kStep, "augment", "", "true", "crop and flip the training images at random", group},
      {kTraining, "set-epoch", "", "true",
       "shuffle anew every epoch; off shows what goes wrong without", group},
      {kTraining, "last-batch", joined(kLastBatches), "pad",
       "images left over at the end of an epoch: filled up with the first ones (pad) or left out "
       "(drop)",
       group},
      {kStep, "feed", joined(kFeeds), "auto",
       "who makes the batches: threads (loader), or the device, where all images then lie as bytes "
       "(resident); auto: resident on a GPU",
       group},
      {kStep, "loader-threads", "N", "1", "threads that prepare batches, per rank, 1 to 256",
       group},
      {kStep, "prefetch", "N", "4", "batches prepared ahead, per rank, 1 to 1024", group},
  };
}

TrainOptionTable training_options() {
  using enum OptionRole;
  const std::string group = "Training";
  return {
      {kStep, "batch-per-rank", "N", kAuto,
       "images a rank takes at once, 1 to 1000000; auto: 128, or what --batch-global leaves",
       group},
      {kStep, "batch-global", "N", kAuto,
       "images of one step on all ranks, ranks × batch-per-rank × accumulate, 1 to 1000000000; "
       "give "
       "this or --batch-per-rank",
       group},
      {kStep, "accumulate", "K", "1",
       "backward passes before gradients are synchronised, 1 to as many as an epoch has; with "
       "--last-batch pad the last step of an epoch takes those that are left",
       group},
      {kCourse, "epochs", "N", "1", "passes over the images, 1 to 1000000", group},
      {kCourse, "iterations", "N", "0",
       "stop after N steps of the whole run, 0 (no limit) to 1000000000", group},
      {kFree, "warmup", "N", "2", "first steps that are flagged as warm-up, 0 to 1000000", group},
      {kFree, "seed", "N", "1", "seed of weights, order and augmentation, 0 to 2^63−1", group},
  };
}

TrainOptionTable machine_options() {
  using enum OptionRole;
  const std::string group = "Machine";
  return {
      {kMachine, "device", joined(kDevices), "auto",
       "what ranks compute on; auto: the GPUs where there are any, one for each rank", group,
       "cpu"},
      {kMachine, "allow-shared-gpu", "", "false", "for tests: several ranks on one GPU", group},
      {kBetweenRanks, "transport", joined(transport_names()), "auto", transport_help(), group,
       "mpi"},
      {kStep, "graph", "", "false",
       "on a GPU: capture the step once and replay it; what keeps it from being captured is said",
       group},
      {kStep, "precision", joined(kPrecisions), "fp32",
       "type of the arithmetic; auto tries fp32 and bf16 here; fp16 scales the loss and leaves out "
       "steps that overflow",
       group},
      {kStep, "tf32", joined(kSwitch), "off", "on a GPU: TF32 in products and convolutions of fp32",
       group},
      {kStep, "layout", joined(kLayouts), "nhwc",
       "memory order of the images; auto tries both here", group},
      {kMachine, "threads", "N", "0",
       "threads per rank, 1 to 1024; 0: the cores the rank may use, over the ranks that share them",
       group},
  };
}

TrainOptionTable yardstick_options() {
  using enum OptionRole;
  const std::string group = "Yardstick";
  return {
      {kFree, "calibrate", "", "false",
       "measure what the collectives reach on these ranks: a sweep before training, the sizes of "
       "the buckets after it",
       group},
      {kFree, "calibration-sizes", "FIRST:LAST", "1KiB:16MiB",
       "sizes of that sweep, powers of two from the first, 1B to below 2GiB", group},
      {kFree, "counterfactual", "N", "0",
       "after training, windows of N steps on a copy: compute alone, communication alone, one "
       "after "
       "the other, together, and together without measuring; 0 (none) to 1000000",
       group},
      {kFree, "counterfactual-rounds", "N", "3", "rounds of these windows, 1 to 1000", group},
  };
}

TrainOptionTable output_options() {
  using enum OptionRole;
  const std::string group = "Output and checks";
  return {
      {kTraining, "evaluate", joined(kEvaluations), "shard",
       "test images after every epoch: shared out, all of them on each rank, or not at all", group},
      {kFree, "log-every", "N", "20", "steps between two lines of the log, 1 to 1000000000", group},
      {kFree, "output", "FILE.h5", "", "the run file; without it nothing is recorded", group},
      {kFree, "verify-modes", "", "false", "prove all modes equal in a few steps before training",
       group},
      {kBetweenRanks, "verify", joined(kVerifications), "init",
       "compare the ranks' collectives: never, in the first steps, or always", group},
      {kFree, "timeout", "TIME", "0",
       "end a hang after so long, 0 to 7 days (168h); 0: the larger of 60s and 20 median "
       "iterations",
       group},
      {kFree, "start-timeout", "TIME", "90s",
       "limit of a wait while MPI and the ranks start and end, 1s to 7 days, if --timeout is less",
       group},
      {kFree, "io-timeout", "TIME", "15m",
       "limit of a wait for a disk (checkpoint, journal, run file), 1s to 7 days, if --timeout is "
       "less",
       group},
      {kStep, "inject-fault", "KIND@RANK:ITERATION", "", "for tests: make one rank misbehave",
       group},
  };
}

// `auto` is 0: not given.
std::int64_t batch_option(const OptionValues& values, const std::string& name, std::int64_t high) {
  return text_option(values, name) == kAuto ? 0 : integer_option(values, name, 1, high);
}

void read_batch(const OptionValues& values, TrainOptions& options) {
  const std::int64_t per_rank = batch_option(values, "batch-per-rank", kMaxCount);
  options.batch_global = batch_option(values, "batch-global", kMaxIterations);
  if (per_rank > 0 && options.batch_global > 0)
    throw option_error(
        values, "batch-global",
        fmt::format("{} together with batch-per-rank = {} ({})", options.batch_global, per_rank,
                    values.at("batch-per-rank").where),
        "give one of the two; `auto` takes back what a file or variable says");
  if (per_rank > 0) options.batch_per_rank = per_rank;
  if (options.batch_global > 0) options.batch_per_rank = 0;
}

std::string fault_option(const OptionValues& values) {
  const std::string text = text_option(values, "inject-fault");
  try {
    parse_fault(text);
    return text;
  } catch (const Error& error) {
    throw option_error(values, "inject-fault",
                       fmt::format("\"{}\" is not KIND@RANK:ITERATION, as nan@1:5", text),
                       error.fix());
  }
}

std::vector<std::int64_t> sweep_option(const OptionValues& values) {
  try {
    return calibrate::parse_size_sweep(text_option(values, "calibration-sizes"));
  } catch (const Error& error) {
    throw option_error(values, "calibration-sizes", error.what(), "give two sizes, as 1KiB:16MiB");
  }
}

std::string data_option(const OptionValues& values) {
  const std::string folder = text_option(values, "data");
  if (!folder.empty()) return folder;
  throw option_error(values, "data", "the folder has no name", "give a folder, as data/cifar-10");
}

void read_model_and_data(const OptionValues& values, TrainOptions& options) {
  options.model = choice_option(values, "model", model_names());
  options.data = data_option(values);
  options.augment = switch_option(values, "augment");
  options.set_epoch = switch_option(values, "set-epoch");
  options.last_batch = choice_option(values, "last-batch", kLastBatches);
  options.feed = choice_option(values, "feed", kFeeds);
  options.loader_threads = integer_option(values, "loader-threads", 1, 256);
  options.prefetch = integer_option(values, "prefetch", 1, 1024);
}

void read_training(const OptionValues& values, TrainOptions& options) {
  read_batch(values, options);
  options.accumulate = integer_option(values, "accumulate", 1, kMaxCount);
  options.epochs = integer_option(values, "epochs", 1, kMaxCount);
  options.iterations = integer_option(values, "iterations", 0, kMaxIterations);
  options.warmup = integer_option(values, "warmup", 0, kMaxCount);
  options.seed = static_cast<std::uint64_t>(
      integer_option(values, "seed", 0, std::numeric_limits<std::int64_t>::max()));
}

void read_machine_and_output(const OptionValues& values, TrainOptions& options) {
  options.device = choice_option(values, "device", kDevices);
  options.allow_shared_gpu = switch_option(values, "allow-shared-gpu");
  options.transport = choice_option(values, "transport", transport_names());
  options.graph = switch_option(values, "graph");
  options.precision = choice_option(values, "precision", kPrecisions);
  options.optimizer.scales_loss = options.precision == "fp16";
  options.tf32 = choice_option(values, "tf32", kSwitch) == "on";
  options.layout = choice_option(values, "layout", kLayouts);
  options.threads = integer_option(values, "threads", 0, 1024);
  options.evaluate = choice_option(values, "evaluate", kEvaluations);
  options.log_every = integer_option(values, "log-every", 1, kMaxIterations);
  options.output = text_option(values, "output");
  options.verify_modes = switch_option(values, "verify-modes");
  options.verify = choice_option(values, "verify", kVerifications);
  options.timeout_s = duration_option(values, "timeout", 0, kMaxTimeout_s);
  options.start_timeout_s = duration_option(values, "start-timeout", 1, kMaxTimeout_s);
  options.io_timeout_s = duration_option(values, "io-timeout", 1, kMaxTimeout_s);
  options.inject_fault = fault_option(values);
}

void read_yardstick(const OptionValues& values, TrainOptions& options) {
  options.calibrate = switch_option(values, "calibrate");
  options.calibrate_sizes = sweep_option(values);
  options.counterfactual = integer_option(values, "counterfactual", 0, kMaxCount);
  options.counterfactual_rounds = integer_option(values, "counterfactual-rounds", 1, 1000);
}

}  // namespace

std::string joined(const std::vector<std::string>& choices) {
  return fmt::format("{}", fmt::join(choices, "|"));
}

const std::vector<std::string>& sync_mode_names() {
  static const std::vector<std::string> names = {"none", "gather-scatter", "allreduce",
                                                 "ddp",  "data-parallel",  "c10d"};
  return names;
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"vgg11", "resnet18", "resnet18-imagenet", "lenet"};
  return names;
}

const TrainOptionTable& declared_train_options() {
  static const TrainOptionTable declared = [] {
    TrainOptionTable all;
    for (const auto& part :
         {synchronisation_options(), replica_options(), model_and_data_options(),
          training_options(), optimiser_options(), learning_rate_options(), machine_options(),
          yardstick_options(), output_options(), stop_options()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return declared;
}

const TrainOption* declared_train_option(std::string_view name) {
  const auto& all = declared_train_options();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const TrainOption& option) { return option.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const std::string& value_before(const TrainOption& option) {
  return option.formerly.empty() ? option.default_value : option.formerly;
}

OptionTable train_option_table() {
  OptionTable table;
  for (const TrainOption& option : declared_train_options())
    table.push_back(
        {option.name, option.value_name, option.default_value, option.help, option.group});
  return table;
}

std::string train_help() {
  return help_text(
      "mpirun -n RANKS gradsync-train [OPTION…]\n"
      "Trains an image classifier on all ranks in one synchronisation mode; records each "
      "iteration.",
      "mpirun -n 2 gradsync-train --model vgg11 --sync ddp --iterations 40 --output run.h5\n"
      "mpirun -n 4 gradsync-train --sync allreduce --granularity tensor --batch-global 256\n"
      "mpirun -n 2 gradsync-train --sync ddp --bucket-cap 4MiB --wire-dtype bf16 --no-augment\n"
      "gradsync-train --sync none --model lenet --epochs 2 --data data/cifar-10\n"
      "mpirun -n 2 gradsync-train --verify-modes --iterations 1\n"
      "mpirun -n 2 gradsync-train --calibrate --counterfactual 20 --iterations 50 --output run.h5\n"
      "mpirun -n 2 gradsync-train --epochs 30 --time-limit 3h --output run.h5 --resume auto\n"
      "gradsync-train --batch-per-rank 64 --print-config",
      train_option_table());
}

TrainOptions train_options(const OptionValues& values) {
  TrainOptions options;
  read_synchronisation(values, options);
  read_model_and_data(values, options);
  read_training(values, options);
  read_optimiser(values, options);
  read_learning_rate(values, options);
  read_replicas(values, options);
  read_machine_and_output(values, options);
  read_yardstick(values, options);
  read_stop(values, options);
  require_overlap_possible(values, options);
  return options;
}

void resolve_batch(TrainOptions& options, std::int64_t ranks) {
  const std::int64_t shares = ranks * options.accumulate;
  if (ranks < 1 || shares < 1)
    throw Error(ExitCode::kInternal, fmt::format("resolve_batch for {} ranks", ranks));
  if (!options.batch_schedule.empty()) {
    options.batch_schedule.require_fits(options.epochs, shares);
    options.batch_global = options.batch_schedule.at(0);
  }
  if (options.batch_global == 0) options.batch_global = options.batch_per_rank * shares;
  if (options.batch_global % shares != 0)
    throw Error(ExitCode::kUsage,
                fmt::format("--batch-global {} does not divide by {} (ranks {} × accumulate {})",
                            options.batch_global, shares, ranks, options.accumulate),
                fmt::format("--batch-global {}", (options.batch_global / shares + 1) * shares));
  options.batch_per_rank = options.batch_global / shares;
  options.learning_rate.global_batch = options.batch_global;
}

WatchLimits watch_limits(const TrainOptions& options) {
  WatchLimits limits;
  limits.automatic = options.timeout_s == 0;
  if (!limits.automatic) limits.timeout_s = options.timeout_s;
  limits.start_s = options.start_timeout_s;
  limits.io_s = options.io_timeout_s;
  limits.timeout_option = "--timeout";
  limits.start_option = "--start-timeout";
  limits.io_option = "--io-timeout";
  return limits;
}

}  // namespace gradsync
