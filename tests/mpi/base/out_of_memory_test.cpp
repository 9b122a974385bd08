// LibTorch's own errors for memory that ran out.
#include <doctest/doctest.h>
#include <torch/types.h>

#include "base/error.h"
#include "mpi/ranks.h"

using namespace gradsync;

namespace {

template <typename Body>
ExitCode code_of(Body body) {
  try {
    body();
  } catch (...) {
    return current_error().code();
  }
  return ExitCode::kOk;
}

}  // namespace

TEST_CASE("what LibTorch throws when memory runs out ends a job as out of memory" * test::once()) {
  CHECK(code_of([] { torch::empty({std::int64_t{1} << 58}); }) == ExitCode::kOutOfMemory);
  CHECK(code_of([] {
          TORCH_CHECK_WITH(OutOfMemoryError, false,
                           "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
                           "capacity of 139.81 GiB of which 1.00 GiB is free.");
        }) == ExitCode::kOutOfMemory);
  CHECK(code_of([] { TORCH_CHECK(false, "CUDA error: out of memory"); }) == ExitCode::kOutOfMemory);
  CHECK(code_of([] { TORCH_CHECK(false, "CUDA error: misaligned address"); }) ==
        ExitCode::kInternal);
}
