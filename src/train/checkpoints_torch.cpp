// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <regex>

#include <fmt/format.h>

#include "base/parse.h"
#include "options/option_roles.h"
#include "train/iteration.h"
#include "train/rank_state.h"
#include "train/trainer.h"

namespace gradsync {

namespace {

constexpr std::size_t kKept = 2;
/// Guess of the first checkpoint: 100 MB/s, and what a file takes at all.
constexpr double kGuessBytesPerSecond = 1e8, kGuessFile_s = 0.5;
/// Guess of publishing a run file: its journal is read, and the file written and compared with it.
constexpr double kPublishedBytesPerSecond = 1e8;

double guess_s(const RankState& state, int ranks) {
  const auto bytes = 2.0 * sizeof(float) * static_cast<double>(state.replica.parameter_count());
  return kGuessFile_s + bytes * ranks / kGuessBytesPerSecond;
}

/// How many iterations compute as many batches as an evaluation does.
double evaluation_iterations(const RunSetting& setting, int ranks) {
  const TrainOptions& options = setting.options;
  const bool shard = evaluate_how(options, ranks) == EvaluateHow::kShard;
  const auto batch = static_cast<double>(options.batch_per_rank * (shard ? ranks : 1));
  const auto images = static_cast<double>(setting.data.size(Split::kTest));
  return std::ceil(images / batch) / static_cast<double>(options.accumulate);
}

}  // namespace

std::string command_to_go_on(const std::string& command_line, int ranks) {
  const std::string bare = std::regex_replace(
      command_line, std::regex("\\s('--resume=[^']*'|--resume(=|\\s+)('[^']*'|\\S+))"), "");
  const bool by_srun = std::getenv("SLURM_STEP_NUM_TASKS") != nullptr;
  return fmt::format("{} -n {} {} --resume auto", by_srun ? "srun --mpi=pmix" : "mpirun", ranks,
                     bare);
}

Checkpoints::Checkpoints(Exchange& exchange, const RunSetting& setting, const RankState& state)
    : exchange_(exchange),
      setting_(setting),
      state_(state),
      forecast_(guess_s(state, exchange.session().size()),
                evaluation_iterations(setting, exchange.session().size())) {
  if (setting.recorder)
    own_.emplace(checkpoint_folder(setting.options.output),
                 setting.resume ? setting.resume->own : std::vector<NamedCheckpoint>());
}

Position Checkpoints::restore() {
  const ResumePlan* plan = setting_.resume;
  if (plan == nullptr || !plan->resumes) return {};
  const Position position{plan->from.iteration, plan->from.epoch, plan->from.step};
  last_iteration_ = position.iteration;
  if (position.iteration > 0) {
    const WatchdogTimeoutExtension reads(exchange_.session().watchdog(), WatchedPhase::kResume);
    const ControlCategory counted(exchange_.session(), Traffic::kCheckpoint);
    const auto tensors = read_checkpoint(exchange_, plan->file ? &*plan->file : nullptr);
    state_.mode.assemble();
    exchange_.session().together([&] { gradsync::restore(state_, tensors); });
    state_.mode.take_apart();
  }
  if (root())
    std::cout << fmt::format("resumes after iteration {}{}\n", position.iteration,
                             plan->file ? fmt::format(" from '{}'", plan->file->path().string())
                                        : ": there is no valid checkpoint")
              << std::flush;
  return position;
}

StopReason Checkpoints::wanted(bool evaluates, std::int64_t iterations) const {
  if (setting_.stop == nullptr) return StopReason::kNone;
  return setting_.stop->reason(needed_s(evaluates, iterations));
}

double Checkpoints::needed_to_suspend_s(bool evaluates) const {
  return recorded() ? needed_s(evaluates, /*iterations=*/1) : 0;
}

/// Rank 0, which publishes, has the recorder.
double Checkpoints::needed_s(bool evaluates, std::int64_t iterations) const {
  const std::int64_t journal_bytes = setting_.recorder ? setting_.recorder->journal_bytes() : 0;
  return forecast_.needed_s(recorded(), evaluates, iterations) +
         static_cast<double>(journal_bytes) / kPublishedBytesPerSecond;
}

void Checkpoints::after_evaluation(double time_s) {
  forecast_.evaluated(time_s);
  since_iteration_.restart_s();
}

void Checkpoints::after_iteration(const Position& position, const Verdict& verdict) {
  const auto iterations = static_cast<double>(position.iteration - last_iteration_);
  if (iterations > 0) forecast_.iterated(since_iteration_.elapsed_s() / iterations);
  last_iteration_ = position.iteration;
  if (verdict.stop != StopReason::kNone) stop(position, verdict);
  if (due(position)) save(position);
  since_iteration_.restart_s();
}

bool Checkpoints::due(const Position& position) const {
  const std::int64_t every = setting_.options.checkpoint_every;
  return every > 0 && position.iteration % every == 0;
}

void Checkpoints::end_training() {
  if (setting_.recorder) training_bytes_ = setting_.recorder->durable_bytes();
}

void Checkpoints::after_training(const Position& position) {
  if (setting_.options.checkpoint_every == kCheckpointAtEnd) save(position);
}

void Checkpoints::save(const Position& position) {
  const Stopwatch watch;
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kCheckpoint);
  const ControlCategory counted(exchange_.session(), Traffic::kCheckpoint);
  state_.mode.assemble();
  exchange_.await(exchange_.now().mark);  // where ranks are waited for is watched, copying is not
  const auto mine = snapshot(state_);
  const std::filesystem::path path = target(position);
  if (root()) make_checkpoint_folder(path.parent_path());
  write_checkpoint(exchange_, mine, root() ? info_at(position) : CheckpointInfo(), path,
                   state_.mode.root_loss() != nullptr);
  state_.mode.take_apart();
  if (own_) own_->written(position.iteration, kKept);
  meet();
  forecast_.saved(watch.elapsed_s());
}

void Checkpoints::suspend(const Position& position) {
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kPublishing);
  // What was recorded before the first iteration is recorded again by the run that resumes.
  if (recorded() && position.iteration > 0) save(position);
  if (setting_.recorder) setting_.recorder->finish(RunStatus::kPartial);
  meet();
}

void Checkpoints::stop(const Position& position, const Verdict& verdict) {
  suspend(position);
  if (!root()) exchange_.session().wait_for_abort();
  throw Error(ExitCode::kStoppedEarly, stop_message(position, verdict),
              recorded() ? command_to_go_on(setting_.command_line, exchange_.session().size())
                         : "give --output, so that a stopped run can be resumed");
}

/// Ranks wait for rank 0's disk here, where the limit is that of I/O.
void Checkpoints::meet() {
  std::byte done{1};
  exchange_.session().broadcast(done);
}

CheckpointInfo Checkpoints::info_at(const Position& position) const {
  CheckpointInfo info = setting_.description;
  info.iteration = position.iteration;
  info.epoch = position.epoch;
  info.step = position.step;
  info.journal_bytes = training_bytes_ ? *training_bytes_ : setting_.recorder->durable_bytes();
  info.elapsed_s = now_s() - setting_.start_s;
  info.written = utc_now();
  return info;
}

std::filesystem::path Checkpoints::target(const Position& position) const {
  return checkpoint_folder(setting_.options.output) / checkpoint_name(position.iteration);
}

std::string Checkpoints::stop_message(const Position& position, const Verdict& verdict) const {
  const std::string what =
      fmt::format("stopped after iteration {} ({} at rank {}); ", position.iteration,
                  stop_text(verdict.stop), verdict.stop_rank);
  if (!recorded()) return what + "nothing is kept";
  return what + fmt::format("'{}' is partial, checkpoint '{}'", setting_.options.output,
                            target(position).string());
}

}  // namespace gradsync
