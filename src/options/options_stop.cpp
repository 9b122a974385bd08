#include "options/option_groups.h"

namespace gradsync {

namespace {

constexpr double kMaxTimeLimit_s = 366.0 * 24 * 3600;
const std::string kEnd = "end";

std::int64_t checkpoint_option(const OptionValues& values) {
  return text_option(values, "checkpoint-every") == kEnd
             ? kCheckpointAtEnd
             : integer_option(values, "checkpoint-every", 0, kMaxIterations);
}

}  // namespace

TrainOptionTable stop_options() {
  using enum OptionRole;
  const std::string group = "Stop and resume";
  return {
      {kCourse, "checkpoint-every", "N|end", "0",
       "steps between two checkpoints, 0 (only when stopped) to 1000000000, or end: one when the "
       "training ends; two are kept, beside the run file in RUN.checkpoints",
       group},
      {kFree, "resume", "no|auto|FILE", "no",
       "go on from this checkpoint, or from the newest sound one of --output (auto; afresh if "
       "there "
       "is none): the result is that of a run that was never stopped",
       group},
      {kFree, "time-limit", "TIME", "0",
       "stop in time to write a checkpoint within TIME of the program's start, as signals USR1 and "
       "TERM at any rank do; 0 (none) to 8784h",
       group},
  };
}

void read_stop(const OptionValues& values, TrainOptions& options) {
  options.checkpoint_every = checkpoint_option(values);
  options.resume = text_option(values, "resume");
  options.time_limit_s = duration_option(values, "time-limit", 0, kMaxTimeLimit_s);
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
