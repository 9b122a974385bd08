#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "comm/session.h"
#include "options/options.h"
#include "stats/clock.h"

namespace gradsync {

/// Why a rank requests a stop of the run.
enum class StopReason : std::int32_t { kNone, kTimeLimit, kUsr1, kTerm };

/// "signal USR1", "--time-limit".
std::string stop_text(StopReason reason);

/// Requests that this rank stops: signals USR1 and TERM, which are remembered from when it is made,
/// and a time limit, counted from then. One a process, made first of all in `main`.
class StopRequest {
 public:
  StopRequest();

  /// 0: none.
  void set_time_limit(double time_limit_s) { time_limit_s_ = time_limit_s; }

  /// Whether to stop now, if the run can stop next after `needed_s`.
  StopReason reason(double needed_s) const;

 private:
  StopSignals signals_;
  Stopwatch since_start_;
  double time_limit_s_ = 0;
};

/// Where a run resumes.
struct ResumePlan {
  bool resumes = false;                ///< else it is a new run
  CheckpointInfo from;                 ///< the place, on all ranks
  std::optional<CheckpointFile> file;  ///< on rank 0; none: from the seed, in the journal there is
  std::vector<NamedCheckpoint> own;    ///< on rank 0: of this run and branch, up to that place
  bool complete = false;               ///< nothing is left to train: the journal is to be published
};

/// Decides by --resume, on rank 0 for all. `requested` describes the run of the options.
/// With `auto` a checkpoint that is damaged, of another run or of a branch that a resume from an
/// earlier one has abandoned is named on stderr and the next older is taken; where there is a
/// journal but no sound checkpoint, the run starts from the beginning in that journal.
/// Ends the job with kBadData when what is there is damaged (FILE: the next older sound one is
/// named) or of other options, ranks or data; kNoInput when FILE or its journal is missing.
/// Collective.
ResumePlan plan_resume(const Session& session, const TrainOptions& options,
                       const CheckpointInfo& requested);

/// Takes over what the options leave to be settled (device, transport, precision, layout, threads)
/// as the run had it.
void settle_as_before(TrainOptions& options, const ResumePlan& plan);

}  // namespace gradsync
