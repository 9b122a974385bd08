#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/half.h"
#include "machine/step_state.h"
#include "machine/stream_handle.h"

/// Kernels of gradsync, each with a CPU reference implementation (…_on_host) that calls the
/// functions of the kernel (sgd_update.h, finite.h, half.h, step_state.h).
///
/// All pointers of a launch are device memory. A launch returns at once; the work is done in the
/// order of `stream`. Throws Error kEnvironment if CUDA refuses the launch or the program was built
/// without CUDA.
namespace gradsync {

/// One parameter with what its step reads and writes: `count` floats each.
struct SgdTensor {
  float* parameter;
  float* gradient;
  float* velocity;
  std::int64_t count;
};

/// A part of a tensor that one block steps: values [part · kSgdPart, (part + 1) · kSgdPart).
struct SgdPart {
  std::int32_t tensor, part;
};
inline constexpr std::int64_t kSgdPart = 4096;

/// The parts of all tensors, in order.
std::vector<SgdPart> sgd_parts(std::span<const SgdTensor> tensors);

struct SgdRule {
  float momentum, weight_decay;
  bool nesterov;
};

/// Steps every tensor with the learning rate and the factor in `state`, and leaves the gradients
/// zeroed. If skips_step(*state), only zeroes them. 24 bytes of memory traffic a value.
void launch_sgd(const SgdTensor* tensors, const SgdPart* parts, std::int64_t part_count,
                const SgdRule& rule, const StepState* state, StreamHandle stream);
void sgd_on_host(std::span<const SgdTensor> tensors, const SgdRule& rule, const StepState& state);

/// wire[i] = values[i] · factor as a 16-bit type; with factor 1/ranks a sum over ranks is their
/// mean.
void launch_pack(const float* values, std::uint16_t* wire, std::int64_t count, float factor,
                 HalfType type, StreamHandle stream);
void pack_on_host(std::span<const float> values, std::span<std::uint16_t> wire, float factor,
                  HalfType type);

/// values[i] = wire[i] · factor.
void launch_unpack(const std::uint16_t* wire, float* values, std::int64_t count, float factor,
                   HalfType type, StreamHandle stream);
void unpack_on_host(std::span<const std::uint16_t> wire, std::span<float> values, float factor,
                    HalfType type);

/// Lowers state->first_bad to the first tensor with a value that is not finite. `offsets`: where
/// each tensor begins in `values`, and the end (`tensors` + 1 entries).
void launch_find_bad(const float* values, std::int64_t count, const std::int64_t* offsets,
                     std::int64_t tensors, StepState* state, StreamHandle stream);
void find_bad_on_host(std::span<const float> values, std::span<const std::int64_t> offsets,
                      StepState& state);

/// The same over the tensors' gradients: first_bad is an index into `tensors`.
void launch_find_bad(const SgdTensor* tensors, const SgdPart* parts, std::int64_t part_count,
                     StepState* state, StreamHandle stream);

/// What the next step is made with. No copy: a launch carries both values.
void launch_prepare(StepState* state, float learning_rate, float clip_factor, StreamHandle stream);

/// finish_step(*state).
void launch_finish_step(StepState* state, StreamHandle stream);

}  // namespace gradsync
