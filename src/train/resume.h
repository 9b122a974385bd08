#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "comm/session.h"
#include "options/options.h"

namespace gradsync {

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
