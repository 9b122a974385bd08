#pragma once

#include <string>
#include <vector>

#include "check/job.h"

namespace gradsync::check {

/// This program, MPI, HDF5, LibTorch, CUDA's run-time library, NCCL, and the system's C and C++
/// libraries. One that is loaded from two files has two entries. Needs MPI initialized.
std::vector<Library> suite_libraries();

/// LibTorch's version by its headers, and by the library that is loaded with the commit it was
/// built from: "2.11.0 (70d99e99)".
std::string libtorch_compiled();
std::string libtorch_loaded();

}  // namespace gradsync::check
