// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_file.h"
#include "record/run.h"

namespace gradsync {

/// What a checkpoint says of its run and of the place it was taken at: its `__metadata__`.
struct CheckpointInfo {
  std::string run_id;
  std::int64_t ranks = 0;
  std::int64_t iteration = 0;      ///< iterations done
  std::int64_t epoch = 0;          ///< in which the run resumes
  std::int64_t step = 0;           ///< iterations of that epoch that are done
  std::int64_t journal_bytes = 0;  ///< what the journal held then, all of it on the disk
  double elapsed_s = 0;            ///< since the start of the run
  std::string written;             ///< ISO 8601, UTC
  TextMap options;                 ///< as they were resolved
  TextMap provenance;              ///< versions, precision, layout, digests of the data
};

/// Description of a run that has just begun: everything but the place. Environment variables are
/// left out.
CheckpointInfo describe_run(const RunInfo& info);

TextMap to_metadata(const CheckpointInfo& info);

/// Throws Error kBadData if something is missing or no number.
CheckpointInfo from_metadata(const TextMap& metadata);

/// Why a run as `mine` describes it cannot resume from `theirs`, or nothing: "sync is ddp there,
/// allreduce here". Options that change no number (where files lie, how often to log, …) do not
/// count; nor does what `mine` leaves to be settled (`auto`, 0 threads).
std::optional<std::string> difference(const CheckpointInfo& theirs, const CheckpointInfo& mine);

/// What should be said though it refuses nothing: another revision or library may round otherwise.
std::optional<std::string> other_versions(const CheckpointInfo& theirs, const CheckpointInfo& mine);

}  // namespace gradsync
