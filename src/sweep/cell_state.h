#pragma once

#include <string>

#include "sweep/launcher.h"

namespace gradsync::sweep {

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
