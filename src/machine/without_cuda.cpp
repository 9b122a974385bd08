#include "machine/augment_kernel.h"
#include "machine/bad_address.h"
#include "machine/kernels.h"
#include "machine/scale.h"

#if !GRADSYNC_WITH_CUDA

#include "base/error.h"

namespace gradsync {

namespace {

[[noreturn]] void refuse() {
  throw Error(ExitCode::kEnvironment, "this gradsync was built with a LibTorch without CUDA",
              "--device cpu, or build with a LibTorch for CUDA (make status)");
}

}  // namespace

void launch_sgd(const SgdTensor*, const SgdPart*, std::int64_t, const SgdRule&, const StepState*,
                StreamHandle) {
  refuse();
}

void launch_scale(float*, std::int64_t, float, StreamHandle) {
  refuse();
}

void launch_lowest_bad(const float*, std::int64_t, unsigned long long*, StreamHandle) {
  refuse();
}

void launch_pack(const float*, std::uint16_t*, std::int64_t, float, HalfType, StreamHandle) {
  refuse();
}

void launch_unpack(const std::uint16_t*, float*, std::int64_t, float, HalfType, StreamHandle) {
  refuse();
}

void launch_find_bad(const float*, std::int64_t, const std::int64_t*, std::int64_t, StepState*,
                     StreamHandle) {
  refuse();
}

void launch_batch(const ResidentImages&, const std::int64_t*, EpochCursor*, const BatchMemory&,
                  StreamHandle) {
  refuse();
}

void launch_find_bad(const SgdTensor*, const SgdPart*, std::int64_t, StepState*, StreamHandle) {
  refuse();
}

void launch_prepare(StepState*, float, float, StreamHandle) {
  refuse();
}

void launch_finish_step(StepState*, StreamHandle) {
  refuse();
}

}  // namespace gradsync

#endif
