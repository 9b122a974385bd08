// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>
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

/// Why a rank requests a stop of the run: the number of a signal, or the time limit.
enum class StopReason : std::int32_t {
  kTimeLimit = -1,
  kNone = 0,
  kUsr1 = SIGUSR1,
  kTerm = SIGTERM
};

/// "signal USR1", "--time-limit".
std::string stop_text(StopReason reason);

/// Requests that this rank stops: by a signal, or by a time limit counted from when it is made. One
/// a process, made first of all in `main`. USR1, Slurm's warning, is remembered from then.
class StopRequest {
 public:
  /// Remembers INT, TERM, HUP and PIPE as well: before MPI has started they end the process, which
  /// may wait for ranks that never come. A limit of 0 s is none.
  void begin(double time_limit_s);

  /// Whether to stop now, if the run can stop next after `needed_s`.
  StopReason reason(double needed_s) const;

 private:
  StopSignals signals_{{SIGUSR1}};
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
