#pragma once

#include <vector>

#include "check/job.h"

namespace gradsync::check {

/// This program, MPI, HDF5, LibTorch, CUDA's run-time library, NCCL, and the system's C and C++
/// libraries. One that is loaded from two files has two entries. Needs MPI initialized.
std::vector<Library> suite_libraries();

}  // namespace gradsync::check
