#include "machine/finite.h"
#include "machine/kernels.h"
#include "machine/launch.h"
#include "machine/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;

/// Rises over the flat buffer, so a thread's first bad value is its lowest.
__global__ void __launch_bounds__(kThreads)
    find_bad(const float* values, std::int64_t fours, std::int64_t count,
             const std::int64_t* offsets, std::int64_t tensors, StepState* state) {
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  const auto report = [&](std::int64_t index) {
    atomicMin(&state->first_bad,
              static_cast<unsigned long long>(tensor_at(index, offsets, tensors)));
  };
#pragma unroll 4
  for (std::int64_t i = thread; i < fours; i += threads) {
    const float4 four = as_float4(values + 4 * i);
    // Bad values are rare: which of the four it was is looked at again.
    if (!(is_bad(four.x) || is_bad(four.y) || is_bad(four.z) || is_bad(four.w))) continue;
    std::int64_t index = 4 * i;
    while (!is_bad(values[index]))
      ++index;
    report(index);
    return;
  }
  for (std::int64_t i = 4 * fours + thread; i < count; i += threads)
    if (is_bad(values[i])) {
      report(i);
      return;
    }
}

/// A block a part.
__global__ void __launch_bounds__(kThreads)
    find_bad_part(const SgdTensor* tensors, const SgdPart* parts, StepState* state) {
  const SgdPart part = parts[blockIdx.x];
  const SgdTensor tensor = tensors[part.tensor];
  const std::int64_t begin = part.part * kSgdPart;
  const std::int64_t end = min(begin + kSgdPart, tensor.count);
  bool bad = false;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    bad |= is_bad(tensor.gradient[i]);
  if (bad) atomicMin(&state->first_bad, static_cast<unsigned long long>(part.tensor));
}

}  // namespace

void launch_find_bad(const SgdTensor* tensors, const SgdPart* parts, std::int64_t part_count,
                     StepState* state, StreamHandle stream) {
  if (part_count == 0) return;
  find_bad_part<<<static_cast<unsigned>(part_count), kThreads, 0,
                  static_cast<cudaStream_t>(stream)>>>(tensors, parts, state);
  require_launched("find_bad_part");
}

void launch_find_bad(const float* values, std::int64_t count, const std::int64_t* offsets,
                     std::int64_t tensors, StepState* state, StreamHandle stream) {
  if (count == 0) return;
  const std::int64_t fours = is_aligned(values) ? count / 4 : 0;
  find_bad<<<blocks_for(fours > 0 ? fours : count, kThreads), kThreads, 0,
             static_cast<cudaStream_t>(stream)>>>(values, fours, count, offsets, tensors, state);
  require_launched("find_bad");
}

}  // namespace gradsync
