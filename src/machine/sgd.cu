#include "machine/kernels.h"
#include "machine/launch.h"
#include "machine/sgd_update.h"
#include "machine/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;

template <bool kNesterov>
__device__ void update(const SgdTensor& tensor, std::int64_t i, const SgdFactors& factors) {
  sgd_update<kNesterov>(tensor.parameter[i], tensor.gradient[i], tensor.velocity[i], factors);
}

/// Four neighbors at once, 16 bytes an access; i is a multiple of 4.
template <bool kNesterov>
__device__ void update_four(const SgdTensor& tensor, std::int64_t i, const SgdFactors& factors) {
  float4 parameter = as_float4(tensor.parameter + i), gradient = as_float4(tensor.gradient + i),
         velocity = as_float4(tensor.velocity + i);
  sgd_update<kNesterov>(parameter.x, gradient.x, velocity.x, factors);
  sgd_update<kNesterov>(parameter.y, gradient.y, velocity.y, factors);
  sgd_update<kNesterov>(parameter.z, gradient.z, velocity.z, factors);
  sgd_update<kNesterov>(parameter.w, gradient.w, velocity.w, factors);
  as_float4(tensor.parameter + i) = parameter;
  as_float4(tensor.gradient + i) = gradient;
  as_float4(tensor.velocity + i) = velocity;
}

/// A block a part.
template <bool kNesterov>
__global__ void __launch_bounds__(kThreads)
    step_part(const SgdTensor* tensors, const SgdPart* parts, SgdRule rule,
              const StepState* state) {
  const SgdPart part = parts[blockIdx.x];
  const SgdTensor tensor = tensors[part.tensor];
  const std::int64_t begin = part.part * kSgdPart;
  const std::int64_t end = min(begin + kSgdPart, tensor.count);
  if (skips_step(*state)) {
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads)
      tensor.gradient[i] = 0;
    return;
  }
  const SgdFactors factors{state->learning_rate, gradient_factor(*state), rule.momentum,
                           rule.weight_decay};
  const bool aligned =
      is_aligned(tensor.parameter) && is_aligned(tensor.gradient) && is_aligned(tensor.velocity);
  const std::int64_t in_fours = aligned ? end / 4 * 4 : begin;
#pragma unroll 4
  for (std::int64_t i = begin + 4 * threadIdx.x; i < in_fours; i += 4 * kThreads)
    update_four<kNesterov>(tensor, i, factors);
#pragma unroll 4
  for (std::int64_t i = in_fours + threadIdx.x; i < end; i += kThreads)
    update<kNesterov>(tensor, i, factors);
}

__global__ void prepare(StepState* state, float learning_rate, float clip_factor) {
  state->learning_rate = learning_rate;
  state->clip_factor = clip_factor;
}

__global__ void finish(StepState* state) {
  finish_step(*state);
}

}  // namespace

void launch_sgd(const SgdTensor* tensors, const SgdPart* parts, std::int64_t part_count,
                const SgdRule& rule, const StepState* state, StreamHandle stream) {
  if (part_count == 0) return;
  const auto kernel = rule.nesterov ? step_part<true> : step_part<false>;
  kernel<<<static_cast<unsigned>(part_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      tensors, parts, rule, state);
  require_launched("sgd");
}

void launch_prepare(StepState* state, float learning_rate, float clip_factor, StreamHandle stream) {
  prepare<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(state, learning_rate, clip_factor);
  require_launched("prepare");
}

void launch_finish_step(StepState* state, StreamHandle stream) {
  finish<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(state);
  require_launched("finish_step");
}

}  // namespace gradsync
