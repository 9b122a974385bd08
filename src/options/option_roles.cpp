// SPDX-License-Identifier: BSD-3-Clause
#include "options/option_roles.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "options/networks.h"
#include "options/transport_choice.h"

namespace gradsync {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {
#define GRADSYNC_OPTIMIZER(name) #name,
#include "options/optimizers.def"
#undef GRADSYNC_OPTIMIZER
  };
  return names;
}

namespace {

using enum OptionRole;
using Value = BoundValue<TrainOptions>;
using O = TrainOptions;

/// The value of an option that leaves the choice to the program.
const std::string kAuto = "auto";

/// The option with TrainOption::may_change.
TrainOption may_change(TrainOption option) {
  option.may_change = true;
  return option;
}

/// The option with TrainOption::open.
TrainOption left_open(const std::string& open, TrainOption option) {
  option.open = open;
  return option;
}

/// The option with TrainOption::formerly.
TrainOption formerly(const std::string& value, TrainOption option) {
  option.formerly = value;
  return option;
}

/// An option that leaves the choice open with kAuto, which is 0 in the settings.
TrainOption open_or(OptionRole role, const std::string& name, std::int64_t TrainOptions::*member,
                    const Value& other, const std::string& help) {
  const auto value = Value::word_or(kAuto, member, std::int64_t{0}, other);
  return left_open(kAuto, {role, name, value, help});
}

constexpr std::int64_t kMaxBucketBytes = std::int64_t{16} << 30;
TrainOption bucket(const std::string& name, std::int64_t TrainOptions::*bytes,
                   const std::string& help) {
  return open_or(OptionRole::kMode, name, bytes, Value::size(bytes, 1, kMaxBucketBytes), help);
}

/// "1%" or "1".
double percent_of(const std::string& text) {
  const double percent =
      parse_number(std::string_view(text).substr(0, text.size() - (text.ends_with('%') ? 1 : 0)));
  if (!(percent >= 0 && percent <= 100))
    throw Error(ExitCode::kUsage, fmt::format("{} is not from 0% to 100%", text));
  return percent;
}

TrainOptionTable synchronization_options() {
  return {
      {kMode, "sync", Value::named("MODE", &O::sync, sync_mode_names()),
       "how gradients are synchronized"},
      {kMode, "granularity", Value::choice(&O::granularity, {"tensor", "flat"}),
       "allreduce and gather-scatter: one call per parameter (tensor) or one for all gradients "
       "(flat)"},
      bucket("first-bucket", &O::first_bucket_bytes,
             "size of the first bucket of gradients; auto: as for --bucket-cap"),
      bucket("bucket-cap", &O::bucket_cap_bytes,
             "size of a bucket; auto: ddp and c10d: that with the least predicted exposed "
             "communication, if it is faster than 25MiB in some iterations before training"),
      {kMode, "overlap", Value::enumerated<Overlap>(&O::overlap, {"backward", "step", "none"}),
       "ddp: what communication overlaps with: the backward pass, the next forward pass too "
       "(step), where each layer waits for its own gradients only, or nothing; the sums are the "
       "same"},
      {kMode, "wire-dtype", Value::choice(&O::wire_dtype, {"fp32", "bf16", "fp16"}),
       "allreduce, ddp, powersgd and local-sgd: data type of what travels"},
      {kMode, "powersgd-rank", Value::integer(&O::powersgd_rank, 1, 1024),
       "powersgd: rank of what travels for the gradient of a matrix"},
      {kMode, "powersgd-start", Value::integer(&O::powersgd_start, 0, kMaxIterations),
       "powersgd: iterations with whole gradients at the start"},
      {kMode, "top-k", Value::number(&O::top_k_percent, 0.001, 100),
       "top-k: how many of the values of a bucket travel, in percent"},
      {kMode, "local-steps", Value::integer(&O::local_steps, 1, kMaxIterations),
       "local-sgd: iterations from one averaging of the parameters to the next"},
      {kMode, "local-start", Value::integer(&O::local_start, 0, kMaxIterations),
       "local-sgd: iterations with averaged gradients at the start"},
      {kMode, "outer", Value::either("none", "nesterov", &O::outer_nesterov),
       "local-sgd: nesterov: the averages are steps of a second optimizer (rate 0.7, momentum "
       "0.9)"},
      {kMode, "fsdp-unit", Value::either("layer", "block", &O::fsdp_blocks),
       "fsdp: whose parameters are gathered at once: a layer's, or a residual or transformer "
       "block's; a network without blocks has layers"},
      {kMode, "stamps", Value::either("on", "off", &O::no_stamps),
       "off: an iteration is timed as a whole only, not its phases and messages; beside one with "
       "them this shows what measuring costs"},
      {kCourse, "compare", Value::text_value(&O::compare, "CONTENDER,…"),
       "settings to train in turn: MODE:OPTION=VALUE:…; in one job, each compared with the first; "
       "all: every mode"},
      open_or(
          kCourse, "block", &O::block, Value::integer(&O::block, 1, kMaxIterations),
          "--compare: iterations of a contender before the next one's; auto: as many as a change "
          "of contender needs, from some rounds before training"),
      left_open(kAuto, {kCourse, "block-warmup",
                        Value::word_or(kAuto, &O::block_warmup, std::int64_t{-1},
                                       Value::integer(&O::block_warmup, 0, kMaxIterations)),
                        "--compare: the first iterations of a block, which do not count; auto: "
                        "measured with --block auto"}),
      {kCourse, "until",
       Value::parsed("P%", "0%", &O::until_percent, percent_of, "give a part of the ratio, as 1%"),
       "--compare: end when the interval of every ratio reaches at most P% to each side; looked at "
       "after 16 rounds, 32, 64, …; 0%: train to the end"},
      {kCourse, "advise",
       Value::word_or(kAuto, &O::advise, std::int64_t{-1},
                      Value::integer(&O::advise, 0, 16, "none")),
       "--compare: so many settings that are predicted to be faster than all contenders that "
       "average gradients join them after the first rounds; auto: 2 on several ranks"},
  };
}

TrainOptionTable replica_options() {
  return {
      {kTraining, "init", Value::enumerated<Init>(&O::init, {"equal", "broadcast", "per-rank"}),
       "initial weights: drawn from one seed on all ranks (equal), or from one seed per rank and "
       "then broadcast from rank 0 (broadcast) or left different (per-rank)"},
      {kBetweenRanks, "sync-only", Value::either("all", "gradients", &O::gradients_only),
       "gradients: nothing else is exchanged to train; each rank keeps its batch-norm statistics "
       "and evaluates its own network"},
  };
}

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

TrainOptionTable model_and_data_options() {
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

TrainOption batch(const std::string& name, std::int64_t TrainOptions::*images, std::int64_t most,
                  const std::string& help) {
  return open_or(OptionRole::kStep, name, images, Value::integer(images, 1, most), help);
}

TrainOptionTable training_options() {
  constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();
  return {
      batch("batch-per-rank", &O::batch_per_rank, kMaxBatchPerRank,
            fmt::format("images per rank and pass; auto: {}, or what --batch-global gives",
                        kDefaultBatchPerRank)),
      batch("batch-global", &O::batch_global, kMaxIterations,
            "images per iteration on all ranks, ranks × batch-per-rank × accumulate; give this or "
            "--batch-per-rank"),
      {kStep, "accumulate", Value::integer(&O::accumulate, 1, kMaxCount),
       "backward passes per iteration, at most those of an epoch; with --last-batch pad the last "
       "iteration of an epoch takes those that are left"},
      {kCourse, "epochs", Value::integer(&O::epochs, 1, kMaxCount), "passes over the images"},
      {kCourse, "iterations", Value::integer(&O::iterations, 0, kMaxIterations, "no limit"),
       "end after N iterations"},
      {kFree, "warmup", Value::integer(&O::warmup, 0, kMaxCount),
       "first iterations that are flagged as warm-up"},
      {kFree, "seed", Value::integer<std::uint64_t>(&O::seed, 0, kMaxSeed),
       "seed of weights, order, augmentation and dropout"},
  };
}

TrainOptionTable optimizer_options() {
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
       "scale the gradient that a rank steps by down to this norm"},
      {kStep, "label-smoothing", Value::fraction(&O::label_smoothing),
       "share of the target spread over all classes"},
      {kBetweenRanks, "batch-norm",
       Value::enumerated<BatchNormMode>(&O::batch_norm, batch_norm_names()),
       "statistics of each rank's images (local), the same with the running means of rank 0 "
       "broadcast before each iteration (broadcast), or of all ranks' images together (sync)"},
  };
}

std::vector<std::int64_t> parse_milestones(const std::string& text) {
  if (text.empty()) return {};
  return each(split_list(text, ','), parse_integer);
}

BatchSchedule parse_batch_schedule(const std::string& text) {
  return text.empty() ? BatchSchedule() : BatchSchedule(text);
}

TrainOptionTable learning_rate_options() {
  using S = LearningRateSettings;
  constexpr std::int64_t kMaxBatch = 1'000'000'000;
  constexpr double kMaxEpochs = 1e6, kMaxRate = 1e3;
  const auto rate = [](auto place) { return part_of(&TrainOptions::learning_rate, place); };
  return {
      {kTraining, "lr-scaling",
       Value::enumerated<LrScaling>(rate(&S::scaling), {"none", "linear", "sqrt"}),
       "scale --lr by the global batch over --base-batch, or by the square root of that"},
      {kTraining, "base-batch", Value::integer(rate(&S::base_batch), 1, kMaxBatch),
       "the global batch that --lr is meant for"},
      {kTraining, "warmup-epochs", Value::number(rate(&S::warmup_epochs), 0, kMaxEpochs),
       "epochs before the full rate, fewer than --epochs"},
      {kTraining, "warmup-rate",
       Value::enumerated<LrWarmup>(rate(&S::warmup), {"gradual", "constant"}),
       "warm-up: linear ramp (gradual), or constant and then the full rate (constant)"},
      {kTraining, "warmup-from",
       Value::word_or(kAuto, rate(&S::warmup_from), -1.0,
                      Value::number(rate(&S::warmup_from), 0, kMaxRate)),
       "initial rate of the warm-up; auto: --lr if scaling raises it, else a tenth of the full "
       "rate"},
      {kTraining, "lr-schedule",
       Value::enumerated<LrSchedule>(
           rate(&S::schedule), {"constant", "step", "multistep", "cosine", "cyclic", "polynomial"}),
       "after the warm-up"},
      {kTraining, "lr-min", Value::number(rate(&S::minimum), 0, kMaxRate),
       "cosine, polynomial, cyclic: the lowest rate"},
      {kTraining, "lr-decay", Value::number(rate(&S::decay), 0, 1),
       "step, multistep: decay factor"},
      {kTraining, "lr-step-epochs", Value::integer(rate(&S::step_epochs), 0, kMaxCount),
       "step: epochs between two decays"},
      {kTraining, "lr-milestones",
       Value::parsed("N,N,…", "", rate(&S::milestones), parse_milestones,
                     "give epochs, as 30,60,80"),
       "multistep: the milestone epochs"},
      {kTraining, "lr-power", Value::number(rate(&S::power), 0, 100), "polynomial: its power"},
      {kTraining, "lr-cycle-epochs", Value::number(rate(&S::cycle_epochs), 0, kMaxEpochs),
       "cyclic: epochs of one rise and fall"},
      {kStep, "batch-schedule",
       Value::parsed("EPOCH:BATCH,…", "", &TrainOptions::batch_schedule, parse_batch_schedule),
       "global batch from each epoch on, as 0:128,3:512, instead of --batch-global"},
  };
}

TrainOptionTable machine_options() {
  return {
      formerly("cpu", left_open(kAuto, {kMachine, "device",
                                        Value::choice(&O::device, {kAuto, "cpu", "cuda"}),
                                        "what ranks compute on; auto: one GPU per rank where there "
                                        "are GPUs"})),
      {kMachine, "allow-shared-gpu", Value::on_off(&O::allow_shared_gpu),
       "for tests: several ranks on one GPU"},
      formerly("mpi", left_open(kAuto, {kBetweenRanks, "transport",
                                        Value::choice(&O::transport, transport_names()),
                                        transport_help()})),
      {kStep, "graph", Value::on_off(&O::graph),
       "on a GPU: capture the iteration as a CUDA graph and replay it; the log says if this is "
       "impossible, and why"},
      {kStep, "precision", Value::choice(&O::precision, {"fp32", "bf16", "fp16", kAuto}),
       "compute dtype (autocast); auto: the faster of fp32 and bf16 here, fp32 on an x86 CPU "
       "without AVX512-BF16; fp16 scales the loss and skips iterations that overflow"},
      {kStep, "tf32", Value::either("off", "on", &O::tf32),
       "on a GPU: TF32 in products and convolutions of fp32"},
      {kStep, "layout", Value::choice(&O::layout, {"nchw", "nhwc", kAuto}),
       "memory layout of the images; auto: the faster of both here"},
      left_open("0", {kMachine, "threads", Value::integer(&O::threads, 0, 1024),
                      "threads per rank; 0: the cores available to the rank, over the ranks that "
                      "share them"}),
  };
}

TrainOptionTable calibration_options() {
  return {
      {kFree, "calibrate", Value::on_off(&O::calibrate),
       "measure the bandwidth of the collectives; a sweep before training, the sizes of the "
       "buckets after it"},
      {kFree, "calibration-sizes",
       Value::parsed("FIRST:LAST", "1KiB:16MiB", &O::calibrate_sizes, parse_size_sweep,
                     "give two sizes, as 1KiB:16MiB"),
       "sizes of that sweep, powers of two from the first, 1B to 1TiB"},
  };
}

TrainOptionTable output_options() {
  constexpr double kMaxTimeout_s = 7 * 24 * 3600;
  return {
      {kTraining, "evaluate",
       Value::enumerated<EvaluateHow>(&O::evaluate, {"shard", "each-rank", "none"}),
       "test images after every epoch: distributed over the ranks, all of them on each rank, or "
       "none"},
      may_change({kFree, "log-every", Value::integer(&O::log_every, 0, kMaxIterations, "none"),
                  "iterations between two lines of the loss"}),
      may_change({kFree, "output", Value::text_value(&O::output, "FILE.h5"),
                  "the run file; without it nothing is recorded. --compare: FILE-CONTENDER.h5, or "
                  "FILE.h5,FILE.h5,…, a file for each in one folder"}),
      {kFree, "verify-modes", Value::on_off(&O::verify_modes),
       "verify that modes give equal parameters; those that change the training equal ranks; a few "
       "iterations before training"},
      may_change({kBetweenRanks, "verify", Value::choice(&O::verify, {"off", "init", "all"}),
                  "compare the ranks' collectives: never, in the first iterations, or always"}),
      may_change({kFree, "timeout", Value::duration(&O::timeout_s, 0, kMaxTimeout_s),
                  "end a hang after TIME; 0: the larger of 60s and 20 median iterations"}),
      may_change(
          {kFree, "start-timeout", Value::duration(&O::start_timeout_s, 1, kMaxTimeout_s),
           "limit of a wait while MPI and the ranks start and end; used if --timeout is less"}),
      may_change({kFree, "io-timeout", Value::duration(&O::io_timeout_s, 1, kMaxTimeout_s),
                  "limit of a wait for a disk (checkpoint, journal, run file); used if --timeout "
                  "is less"}),
      may_change({kStep, "inject-fault",
                  Value::parsed("KIND@RANK:ITERATION", "", &O::inject_fault, parse_fault),
                  "for tests: make one rank misbehave; slow@RANK:FACTOR lasts, slow@all: on each"}),
  };
}

TrainOptionTable stop_options() {
  constexpr double kMaxTimeLimit_s = 366.0 * 24 * 3600;
  return {
      may_change(
          {kCourse, "checkpoint-every",
           Value::word_or(
               "end", &O::checkpoint_every, kCheckpointAtEnd,
               Value::integer(&O::checkpoint_every, 0, kMaxIterations, "only when stopped")),
           "iterations between checkpoints; end: one when training ends; the newest two are kept, "
           "beside the run file in RUN.checkpoints"}),
      may_change({kFree, "resume", Value::text_value(&O::resume, "no|auto|FILE"),
                  "resume from a checkpoint, or from the newest of --output; auto starts from the "
                  "beginning if there is no valid one. The result is that of a run that was never "
                  "stopped"}),
      may_change(
          {kFree, "time-limit", Value::duration(&O::time_limit_s, 0, kMaxTimeLimit_s, "none"),
           "write a checkpoint and stop within TIME of the start; signals USR1, TERM, INT, HUP and "
           "PIPE at any rank do the same"}),
      {kCourse, "target-accuracy", Value::number(&O::target_accuracy, 0, 100),
       "end training after the epoch whose test accuracy, mean over ranks, is X % or more; 0: "
       "never"},
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

void require_one_batch(const OptionValues& values, const TrainOptions& options) {
  if (options.batch_per_rank > 0 && options.batch_global > 0)
    throw option_error(
        values, "batch-global",
        fmt::format("{} together with batch-per-rank = {} ({})", options.batch_global,
                    options.batch_per_rank, values.at("batch-per-rank").where),
        "give one of the two; `auto` resets the value of a file or variable");
}

void require_optimizer_possible(const OptionValues& values, const TrainOptions& options) {
  const OptimizerSettings& optimizer = options.optimizer;
  if (optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0))
    throw option_error(values, "nesterov", "it is a form of sgd's momentum",
                       "give --optimizer sgd and a --momentum above 0");
  const Mode& mode = mode_named(options.sync);
  if (options.batch_norm != BatchNormMode::kLocal && mode.local)
    throw option_error(values, "batch-norm",
                       fmt::format("{}, and ranks of --sync {} exchange nothing{}",
                                   batch_norm_name(options.batch_norm), options.sync,
                                   mode.exchanges ? " in most iterations" : ""),
                       "give a mode that exchanges in every iteration, or --batch-norm local");
  const auto refuse = [&](const char* option, const std::string& why, const std::string& fix) {
    throw option_error(values, option, fmt::format("--sync {} {}", options.sync, why), fix);
  };
  if (options.wire_dtype != "fp32" && mode.exchanges && !mode.casts)
    refuse("wire-dtype", "sends what it has",
           "--wire-dtype fp32; with --compare, of one contender: ddp:wire-dtype=bf16");
  if (options.precision == "fp16" && !mode.changes.empty())
    refuse("precision", "would carry what overflows in fp16 into later steps", "--precision bf16");
  if (options.init == Init::kPerRank &&
      (mode.sharded || mode.root_only || (mode.local && mode.exchanges)))
    refuse("init", "moves parameters between the ranks, which makes them equal",
           "--init equal or broadcast");
  if (mode.sharded && (optimizer.name == "lars" || optimizer.name == "lamb"))
    refuse("optimizer",
           "has no rank that holds whole layers, whose norms " + optimizer.name + " needs",
           "--optimizer sgd or adam");
}

void require_rate_possible(const OptionValues& values, const TrainOptions& options) {
  require_covered(options.learning_rate);
  if (options.batch_schedule.empty()) return;
  for (const char* other : {"batch-per-rank", "batch-global"})
    if (text_option(values, other) != kAuto)
      throw option_error(
          values, "batch-schedule",
          fmt::format("it sets the batch, as {} ({}) does", other, values.at(other).where),
          fmt::format("leave one of them out (`{} = auto`)", other));
  options.batch_schedule.require_fits(options.epochs, 1);
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
  if (mode_named(options.sync).sharded || mode_named(options.sync).local)
    refuse(fmt::format("--sync {} moves parameters", options.sync), "choose another --sync");
  if (options.batch_norm != BatchNormMode::kLocal)
    refuse(fmt::format("--batch-norm {} moves batch-norm statistics",
                       batch_norm_name(options.batch_norm)),
           "--batch-norm local");
}

void require_target_possible(const OptionValues& values, const TrainOptions& options) {
  if (options.target_accuracy > 0 && options.evaluate == EvaluateHow::kNone)
    throw option_error(values, "target-accuracy", "needs the test accuracy of each epoch",
                       "--evaluate shard");
}

void require_checkpoints_possible(const OptionValues& values, const TrainOptions& options) {
  if (options.resume.empty())
    throw option_error(values, "resume", "the file has no name", "give no, auto or a file");
  const char* needs_output = options.checkpoint_every != 0 ? "checkpoint-every"
                             : options.resume == kAuto     ? "resume"
                                                           : nullptr;
  if (needs_output && options.output.empty())
    throw option_error(values, needs_output,
                       "checkpoints lie beside the run file, and there is none",
                       "give --output FILE.h5 too");
}

// --overlap step updates layer by layer, and the ranks exchange nothing else.
void require_overlap_possible(const OptionValues& values, const TrainOptions& options) {
  if (options.overlap == Overlap::kBackward) return;
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    throw option_error(values, "overlap",
                       text_option(values, "overlap") + " cannot be combined with " + why, fix);
  };
  if (!mode_named(options.sync).defers) refuse("--sync " + options.sync, "--sync ddp");
  if (options.overlap == Overlap::kNone) return;
  if (options.clip_norm > 0)
    refuse("--clip-norm, which needs all gradients at once", "--clip-norm 0");
  if (options.precision == "fp16")
    refuse("--precision fp16, whose steps may be left out", "--precision bf16");
  if (options.batch_norm != BatchNormMode::kLocal)
    refuse("--batch-norm " + batch_norm_name(options.batch_norm), "--batch-norm local");
}

}  // namespace

const TrainOptionTable& declared_train_options() {
  static const TrainOptionTable declared = [] {
    const std::vector<std::pair<std::string, TrainOptionTable>> groups = {
        {"Synchronization", synchronization_options()},
        {"Replicas", replica_options()},
        {"Network and data", model_and_data_options()},
        {"Training", training_options()},
        {"Optimizer", optimizer_options()},
        {"Learning rate over the run", learning_rate_options()},
        {"Machine", machine_options()},
        {"Calibration", calibration_options()},
        {"Output and checks", output_options()},
        {"Stop and resume", stop_options()},
    };
    TrainOptionTable all;
    for (const auto& [name, options] : groups)
      for (TrainOption option : options) {
        option.group = name;
        all.push_back(std::move(option));
      }
    return all;
  }();
  return declared;
}

const TrainOption* declared_train_option(std::string_view name) {
  const auto& all = declared_train_options();
  const auto found = std::ranges::find(all, name, &TrainOption::name);
  return found == all.end() ? nullptr : &*found;
}

bool is_of_contender(const TrainOption& option) {
  return option.name != "sync" && (option.role == kMode || option.role == kBetweenRanks);
}

std::string other_training_text(const std::string& name) {
  const std::string contender = name.substr(0, name.find(" ("));  // " (2)", " (control)"
  if (const Mode& mode = mode_named(contender.substr(0, contender.find(':')));
      !mode.changes.empty())
    return fmt::format(" (another training: ranks step by {})", mode.changes);
  const std::string setting = ":accumulate=";
  const std::size_t at = contender.find(setting);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + setting.size();
  return fmt::format(" (another training: {} passes per update; times per as many images)",
                     contender.substr(begin, contender.find(':', begin) - begin));
}

std::string value_before(const TrainOption& option) {
  return option.formerly.empty() ? option.value.text(TrainOptions{}) : option.formerly;
}

void require_possible(const OptionValues& values, const TrainOptions& options) {
  for (const auto require :
       {require_network_possible, require_one_batch, require_optimizer_possible,
        require_rate_possible, require_gradients_suffice, require_target_possible,
        require_checkpoints_possible, require_overlap_possible})
    require(values, options);
}

}  // namespace gradsync
