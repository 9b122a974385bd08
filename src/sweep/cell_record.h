#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/process.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// Why a cell has no run.
enum class FailureKind {
  kFailed,
  kOutOfMemory,  ///< a result: the batch does not fit
  kNotRun,       ///< not tried: a smaller batch did not fit
};

/// How a cell failed.
struct CellFailure {
  FailureKind kind = FailureKind::kFailed;
  ProcessResult result;  ///< of no meaning for kNotRun
  std::string message;   ///< the trainer's own words, from the log
  double duration_s = 0;
};

/// Writes <cell>.failed.json: {cell, kind, exit_code, signal, message, log, time, duration_s}.
void record_failure(const CellFiles& files, const GridCell& cell, const CellFailure& failure);

/// What <cell>.failed.json says; nothing if there is none. One that is damaged is a failure without
/// a message.
std::optional<CellFailure> recorded_failure(const CellFiles& files);

/// The last error that `program` printed ("program: …" and its indented lines), else the first line
/// in which srun or mpirun reports a rank that ended, else the last three lines that say anything.
std::string last_error(const std::string& log, const std::string& program);

/// Whether the kernel ended the run because memory ran out: the run was killed, and the
/// kernel counted such an end on this host in the meantime or Slurm's words about it are in the
/// log. A kill without these signs may have had any cause.
bool killed_for_memory(const ProcessResult& result, std::int64_t kernel_counted,
                       const std::string& log);

/// Whether the run was killed from outside: by signal 9, or with what launchers make of it, exit
/// code 137 (9 of MPICH's, and of Open MPI's where the connection to the rank ended before the
/// rank; 255 of Intel's with its message in the log).
bool was_killed(const ProcessResult& result, const std::string& log);

/// How many processes the kernel has ended for want of memory since the host started, from
/// /proc/vmstat; 0 where it does not say.
std::int64_t kernel_memory_kills();

enum class CellState {
  kMissing,
  kRunning,  ///< a process holds its lock
  kPartial,  ///< its journal is there: a run that was stopped or killed
  kDone,     ///< <cell>.h5 is there and complete: no journal, or one that was to be removed
  kFailed,   ///< <cell>.failed.json is there, whatever else is; so for the next two
  kOutOfMemory,
  kNotRun  ///< a smaller batch ran out of memory
};

CellState cell_state(const CellFiles& files);

/// Done or out of memory: there is nothing to run any more.
bool is_settled(CellState state);

/// "missing", "running", "partial", "done", "failed", "out of memory", "not run".
std::string state_text(CellState state);

}  // namespace gradsync::sweep
