#include "options/option_groups.h"

namespace gradsync {

TrainOptionTable stop_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
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
           "write a checkpoint and stop within TIME of the start; signals USR1 and TERM at any "
           "rank do the same"}),
      {kCourse, "target-accuracy", Value::number(&O::target_accuracy, 0, 100),
       "end training after the epoch whose test accuracy, mean over ranks, is X % or more; 0: "
       "never"},
  };
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

}  // namespace gradsync
