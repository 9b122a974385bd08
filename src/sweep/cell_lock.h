#pragma once

#include "base/file.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// While it lives, the cell is ours to run: <cell>.running is there and locked, and says on which
/// host and by which process. mpirun and srun inherit the lock, so that a run which outlives its
/// sweep keeps it.
class CellLock {
 public:
  /// Throws Error kUsage if another process runs the cell, kCannotCreate if the file cannot be
  /// made.
  explicit CellLock(const CellFiles& files);
  ~CellLock();
  CellLock(const CellLock&) = delete;
  CellLock& operator=(const CellLock&) = delete;

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

/// Whether a process runs the cell now.
bool is_running(const CellFiles& files);

/// "host n1, process 4711": which process runs the cell, or did before it was killed; empty if
/// none.
std::string runner_of(const CellFiles& files);

}  // namespace gradsync::sweep
