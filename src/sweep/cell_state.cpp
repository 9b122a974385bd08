#include "sweep/cell_state.h"

#include "record/recorder.h"
#include "sweep/cell_lock.h"
#include "sweep/cell_record.h"

namespace gradsync::sweep {

namespace {

CellState state_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::kOutOfMemory:
      return CellState::kOutOfMemory;
    case FailureKind::kNotRun:
      return CellState::kNotRun;
    case FailureKind::kFailed:
      break;
  }
  return CellState::kFailed;
}

}  // namespace

CellState cell_state(const CellFiles& files) {
  if (is_running(files)) return CellState::kRunning;
  if (const auto failure = recorded_failure(files)) return state_of(failure->kind);
  const bool has_run = std::filesystem::exists(files.run);
  if (std::filesystem::exists(files.journal))
    return has_run && is_published(files.run) ? CellState::kDone : CellState::kPartial;
  return has_run ? CellState::kDone : CellState::kMissing;
}

bool is_settled(CellState state) {
  return state == CellState::kDone || state == CellState::kOutOfMemory;
}

std::string state_text(CellState state) {
  switch (state) {
    case CellState::kMissing:
      return "missing";
    case CellState::kRunning:
      return "running";
    case CellState::kPartial:
      return "partial";
    case CellState::kDone:
      return "done";
    case CellState::kFailed:
      return "failed";
    case CellState::kOutOfMemory:
      return "out of memory";
    case CellState::kNotRun:
      return "not run";
  }
  return "";
}

}  // namespace gradsync::sweep
