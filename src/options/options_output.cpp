#include <fmt/format.h>

#include "options/fault.h"
#include "options/option_groups.h"

namespace gradsync {

namespace {

std::string checked_fault(const std::string& text) {
  try {
    parse_fault(text);
    return text;
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage,
                fmt::format("\"{}\" is not KIND@RANK:ITERATION, as nan@1:5", text), error.fix());
  }
}

}  // namespace

TrainOptionTable output_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  constexpr double kMaxTimeout_s = 7 * 24 * 3600;
  return {
      {kTraining, "evaluate",
       Value::enumerated<EvaluateHow>(&O::evaluate, {"shard", "each-rank", "none"}),
       "test images after every epoch: distributed over the ranks, all of them on each rank, or "
       "none"},
      may_change({kFree, "log-every", Value::integer(&O::log_every, 0, kMaxIterations, "none"),
                  "iterations between two lines of the loss"}),
      may_change({kFree, "output", Value::text_value(&O::output, "FILE.h5"),
                  "the run file; without it nothing is recorded"}),
      {kFree, "verify-modes", Value::on_off(&O::verify_modes),
       "verify that all modes give equal gradients; a few iterations before training"},
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
                  Value::parsed("KIND@RANK:ITERATION", "", &O::inject_fault, checked_fault),
                  "for tests: make one rank misbehave"}),
  };
}

}  // namespace gradsync
