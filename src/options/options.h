// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cli/program_help.h"
#include "comm/watched_phases.h"
#include "data/sampler.h"
#include "options/modes.h"
#include "options/networks.h"

namespace gradsync {

enum class LrScaling { kNone, kLinear, kSqrt };
enum class LrWarmup { kGradual, kConstant };
enum class LrSchedule { kConstant, kStep, kMultistep, kCosine, kCyclic, kPolynomial };

/// How the learning rate goes over a run. Epochs are counted from the start of training, warm-up
/// included; fractions of an epoch count.
struct LearningRateSettings {
  double base = 0.1;                     ///< --lr: the rate at `base_batch`
  LrScaling scaling = LrScaling::kNone;  ///< in (global batch / base_batch)
  std::int64_t base_batch = 128;
  std::int64_t global_batch = 128;  ///< at the start of training
  std::int64_t epochs = 1;          ///< of the whole run
  double warmup_epochs = 0;
  LrWarmup warmup = LrWarmup::kGradual;
  double warmup_from = -1;  ///< rate at the start of the warm-up; below 0: see rates()
  LrSchedule schedule = LrSchedule::kConstant;
  double minimum = 0;                    ///< cosine, polynomial, cyclic: the lowest rate
  double decay = 0.1;                    ///< step, multistep: the factor of each fall
  std::int64_t step_epochs = 0;          ///< step: epochs between two falls
  std::vector<std::int64_t> milestones;  ///< multistep: the epochs of the falls, rising
  double power = 1;                      ///< polynomial
  double cycle_epochs = 0;               ///< cyclic: one rise and one fall
};

/// Throws Error kUsage if the settings do not fit the epochs: a warm-up, milestone, step or cycle
/// outside them, milestones that do not rise.
void require_covered(const LearningRateSettings& settings);

/// The learning rate of every iteration.
///
/// Full rate: base × k, k = global batch / base_batch, with `linear` scaling (Goyal et al., 2017,
/// section 2.1), base × √k with `sqrt` (Krizhevsky, 2014), base with `none`. The batch is that of
/// the start, so a growing batch takes the place of a falling rate (Smith et al., 2018).
///
/// Warm-up (Goyal et al., section 2.2) from `warmup_from`, by default the rate before scaling, or a
/// tenth of the full rate where scaling does not raise it: `gradual` rises linearly to the full
/// rate, `constant` stays and then jumps.
///
/// After the warm-up, with t in epochs, E of them, and u = (t − warm-up) / (E − warm-up):
///   constant    full
///   step        full · decay^⌊t / step_epochs⌋
///   multistep   full · decay^(milestones ≤ t)
///   cosine      minimum + (full − minimum) · (1 + cos πu) / 2       (Loshchilov and Hutter, 2017)
///   polynomial  minimum + (full − minimum) · (1 − u)^power
///   cyclic      minimum … full … minimum in straight lines, a cycle after the other (Smith, 2017)
class LearningRate {
 public:
  /// Throws Error kUsage as require_covered() does, and for a lowest rate above the full one.
  explicit LearningRate(LearningRateSettings settings);

  /// The rate at `epoch` (fractional, 0 … epochs).
  double at(double epoch) const;

  /// The rate after scaling, which the warm-up ends at.
  double full() const { return full_; }

 private:
  double warming(double epoch) const;
  double falls(double epoch) const;
  double cyclic(double epoch) const;

  LearningRateSettings settings_;
  double full_ = 0, from_ = 0;
};

/// A global batch that grows (or shrinks) at given epochs: "0:128,3:512" trains three epochs at 128
/// and the rest at 512. A growing batch takes the place of a falling rate (Smith et al., 2018).
class BatchSchedule {
 public:
  BatchSchedule() = default;

  /// Throws Error kUsage for anything but EPOCH:BATCH pairs with commas, of which the first names
  /// epoch 0, epochs rise, and batches are 1 or more.
  explicit BatchSchedule(std::string_view text);

  /// Throws Error kUsage if an epoch lies beyond the run, or a batch does not divide by `shares`
  /// (ranks × accumulate).
  void require_fits(std::int64_t epochs, std::int64_t shares) const;

  /// Whether there is none: the batch stays.
  bool empty() const { return phases_.empty(); }

  /// The global batch of `epoch`; requires a schedule.
  std::int64_t at(std::int64_t epoch) const;

 private:
  struct Phase {
    std::int64_t epoch, batch;
  };
  std::string text_;
  std::vector<Phase> phases_;
};

/// What an optimizer is made with; knows no LibTorch.
struct OptimizerSettings {
  std::string name = "sgd";  ///< of optimizer_names()
  double momentum = 0.9;     ///< sgd, lars
  double weight_decay = 5e-4;
  bool nesterov = false;              ///< sgd
  double beta1 = 0.9, beta2 = 0.999;  ///< adam, lamb
  double epsilon = 1e-8;              ///< adam, lamb
  bool scales_loss = false;           ///< fp16: with a loss scale (StepState)
  double trust_coefficient = 1e-3;    ///< lars
};

/// A fault that a test requests with --inject-fault KIND@RANK:ITERATION, or, of the last two kinds,
/// KIND@RANK:FACTOR, in the order of the names of KIND.
enum class FaultKind {
  kNone,
  kNotANumber,
  kKill,
  kStop,
  kLeave,
  kSkip,
  kShort,
  kOtherType,
  kOtherRoot,
  kOutOfMemory,
  kUsr1,
  kTerm,
  kDelay,      ///< sleeps for kDelay_s
  kSlow,       ///< every forward pass takes FACTOR times as long
  kSlowLoader  ///< every batch takes FACTOR times as long to load
};

/// How late the delayed rank is.
inline constexpr double kDelay_s = 3;

struct Fault {
  static constexpr int kAllRanks = -1;  ///< of kinds that last

  FaultKind kind = FaultKind::kNone;
  int rank = 0;
  std::int64_t iteration = -1;
  double factor = 1;  ///< of kSlow and kSlowLoader, which have no iteration

  bool due(int at_rank, std::int64_t at_iteration) const {
    return kind != FaultKind::kNone && rank == at_rank && iteration == at_iteration;
  }
  /// How many times as long what `slowed` names takes on a rank.
  double slowdown(FaultKind slowed, int at_rank) const {
    return kind == slowed && (rank == at_rank || rank == kAllRanks) ? factor : 1;
  }
};

/// Reads "nan@1:5"; an empty text is no fault. Throws Error kUsage listing the kinds; what() ends a
/// sentence.
Fault parse_fault(const std::string& text);

/// --batch-per-rank where no batch is given.
inline constexpr std::int64_t kDefaultBatchPerRank = 128;

/// What ranks exchange of batch norm: nothing, rank 0's buffers before each iteration (as
/// DistributedDataParallel does), or the statistics of all ranks' images in each pass.
enum class BatchNormMode { kLocal, kBroadcast, kSync };
/// "local", "broadcast", "sync", in the order of the enumeration.
const std::vector<std::string>& batch_norm_names();
const std::string& batch_norm_name(BatchNormMode batch_norm);

/// How replicas come to equal parameters at the start: by the same seed, by rank 0's, or not.
enum class Init { kEqual, kBroadcast, kPerRank };

/// What communication overlaps with: the backward pass, the next iteration as well, or nothing.
enum class Overlap { kBackward, kStep, kNone };

/// Where batches come from; kAuto: from the device's memory on GPUs, else from loader threads.
enum class FeedFrom { kAuto, kLoader, kResident };

enum class EvaluateHow {
  kShard,  ///< each image once over all ranks, one result for all; batch-norm buffers are rank 0's
  kEachRank,  ///< every rank its own replica on all images: replicas without exchange differ
  kNone,
};

/// What the synchronization modes are made with.
struct SyncSettings {
  std::string granularity = "flat";                            ///< tensor | flat
  std::int64_t first_bucket_bytes = kDefaultFirstBucketBytes;  ///< 0: settle_buckets() fills it in
  std::int64_t bucket_cap_bytes = kDefaultBucketCapBytes;      ///< the same
  std::string wire_dtype = "fp32";                             ///< fp32 | bf16 | fp16
  Overlap overlap = Overlap::kBackward;
  std::int64_t powersgd_rank = 4, powersgd_start = 0;
  double top_k_percent = 1;
  std::int64_t local_steps = 8, local_start = 0;
  bool outer_nesterov = false;  ///< --outer
  bool fsdp_blocks = true;      ///< --fsdp-unit
};

/// The trainer's settings, all checked: every value below is in its range when `train_options`
/// returns. The values here are the defaults of the options, which option_roles.cpp declares.
struct TrainOptions : SyncSettings {
  std::string sync = "ddp";        ///< --sync, a name of sync_mode_names()
  std::string model = "resnet18";  ///< see networks.def
  std::string data = "data/cifar-10";
  std::string output;  ///< --output FILE.h5; empty: nothing is recorded
  std::int64_t epochs = 1;
  std::int64_t iterations = 0;      ///< 0: no limit; else the whole run ends after so many
  std::int64_t warmup = 2;          ///< iterations flagged as warm-up
  std::int64_t batch_per_rank = 0;  ///< at most one of the two is given by the user, the other
  std::int64_t batch_global = 0;    ///< is 0 until resolve_batch() fills it in
  std::int64_t accumulate = 1;
  LearningRateSettings learning_rate;  ///< its global batch is filled in by resolve_batch()
  BatchSchedule batch_schedule;
  OptimizerSettings optimizer;
  double clip_norm = 0;  ///< 0: never
  double label_smoothing = 0;
  BatchNormMode batch_norm = BatchNormMode::kLocal;
  Init init = Init::kEqual;
  bool gradients_only = false;    ///< --sync-only gradients
  bool no_stamps = false;         ///< --stamps off: no times but the iteration's
  std::string device = "auto";    ///< auto | cpu | cuda
  std::string compare;            ///< contenders; empty: one run
  std::int64_t block = 1;         ///< iterations of a contender before the next one's; 0: measured
  std::int64_t block_warmup = 0;  ///< the first of them, which do not count; -1: measured
  double until_percent = 0;       ///< that ends the job when ratios are known to it; 0: never
  std::int64_t advise = -1;       ///< contenders that join; -1: 2 in a job of several ranks
  bool allow_shared_gpu = false;
  bool graph = false;              ///< --graph: the step captured and replayed
  std::string transport = "auto";  ///< auto | mpi | shm | tcp-ring | two-level | nccl
  std::string precision = "fp32";  ///< fp32 | bf16 | fp16 | auto
  bool tf32 = false;               ///< on a GPU: TF32 in fp32's products
  FeedFrom feed = FeedFrom::kAuto;
  std::string layout = "nhwc";  ///< nchw | nhwc | auto
  std::int64_t threads = 0;     ///< 0: the cores this rank may use over the ranks that share them
  std::int64_t loader_threads = 1;
  std::int64_t prefetch = 4;  ///< batches
  std::uint64_t seed = 1;
  bool augment = true;
  bool set_epoch = true;  ///< --no-set-epoch
  LastBatch last_batch = LastBatch::kPad;
  EvaluateHow evaluate = EvaluateHow::kShard;
  std::int64_t log_every = 0;  ///< iterations; 0: none
  bool verify_modes = false;
  std::string verify = "init";  ///< off | init | all
  double timeout_s = 0;         ///< 0: max(60 s, 20 × median iteration)
  double start_timeout_s = 90, io_timeout_s = 900;
  Fault inject_fault;  ///< for tests
  bool calibrate = false;
  std::vector<std::int64_t> calibrate_sizes;  ///< bytes a rank, rising
  std::int64_t checkpoint_every = 0;          ///< iterations; 0: only when the run is stopped
  std::string resume = "no";                  ///< no | auto | a checkpoint's file
  double time_limit_s = 0;                    ///< since the start of the program; 0: none
  double target_accuracy = 0;           ///< of the test, in percent, that ends training; 0: none
  std::int64_t sequence_length = 1024;  ///< tokens of a sample of gpt2-small
  std::string input = "3x224x224";      ///< a sample of --model FILE.pt: channels, height, width
  std::int64_t classes = 1000;          ///< its outputs
};

/// The names that --sync, --model and --optimizer take, in the order of --help: those of modes.def,
/// networks.def and optimizers.def.
const std::vector<std::string>& sync_mode_names();
const std::vector<std::string>& model_names();
const std::vector<std::string>& optimizer_names();

/// What the network of the options takes.
NetworkInput network_input(const TrainOptions& options);

/// The option table of the trainer, from declared_train_options().
const OptionTable& train_option_table();

ProgramHelp train_help();

/// Reads and checks the settings. `values` comes from `resolve_options` with the table above.
/// Throws Error kUsage with the option, its value, its source and what would be right.
TrainOptions train_options(const OptionValues& values);

/// Fills in batch_per_rank or batch_global for `ranks` ranks: global = ranks × per rank ×
/// accumulate. A batch_global above 0 decides, else batch_per_rank does; calling it again changes
/// nothing. With a batch schedule the batch is that of epoch 0. Throws Error kUsage if a global
/// batch does not divide by ranks × accumulate.
void resolve_batch(TrainOptions& options, std::int64_t ranks);

/// The least number of iterations, a multiple of `period`, of which any so many in a row hold
/// equally many exchanges of the training: local-sgd has one in --local-steps. Throws Error kUsage
/// above the most iterations of a run.
std::int64_t common_period(std::int64_t period, const TrainOptions& options);

/// How long ranks wait for each other.
WatchLimits watch_limits(const TrainOptions& options);

/// A training of a job: that of the options or, with --compare, one of several.
struct Contender {
  std::string name;  ///< "ddp:bucket-cap=4MiB", "ddp (control)"; unique
  OptionValues values;
  TrainOptions options;
  bool control = false;  ///< the reference again, without having been named twice
};

/// The contenders of --compare in their order, the reference first; one that is named once has its
/// control behind the others: the same settings again. Without --compare the run of the options
/// alone. The output of each is a file of its own: cmp-ddp.h5 for cmp.h5, or those that --output
/// lists (runs/none.h5,ddp.h5, and runs/none-control.h5). Throws Error kUsage for an unknown mode
/// or option, for one that changes the training or the machine rather than what ranks exchange (it
/// names the role), for settings that do not go together, and beside --compare for --sync on the
/// command line, --resume FILE and --target-accuracy.
std::vector<Contender> contenders(const OptionValues& values, const TrainOptions& options);
/// A contender, as --compare names it, that joins those of the values.
Contender joining(const std::string& text, const OptionValues& values);

}  // namespace gradsync
