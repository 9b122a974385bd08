// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "machine/device.h"

/// Kernels of gradsync, each with a CPU reference implementation (…_on_host) that calls the
/// functions of the kernel (kernel_math.h, base/numbers.h).
///
/// All pointers of a launch are device memory. A launch returns at once; the work is done in the
/// order of `stream`. Throws Error kEnvironment if CUDA refuses the launch or the program was built
/// without CUDA.
namespace gradsync {

/// How fp16's gradients are kept in its range, by the rule of torch.amp.GradScaler: the loss is
/// multiplied by a scale. A step whose gradients overflow is left out and halves the scale;
/// `kGrowthInterval` good steps in a row double it, unless that would be infinite.
struct LossScale {
  static constexpr float kStart = 65536, kGrowth = 2, kBackoff = 0.5f;
  static constexpr int kGrowthInterval = 2000;

  float scale = 1;
  int good_steps = 0;  ///< since the scale last changed
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// The scale after a step.
GRADSYNC_HOST_DEVICE inline LossScale next_loss_scale(const LossScale& now, bool overflow) {
  if (overflow) return {now.scale * LossScale::kBackoff, 0};
  if (now.good_steps + 1 < LossScale::kGrowthInterval) return {now.scale, now.good_steps + 1};
  const float grown = now.scale * LossScale::kGrowth;
  const bool finite = grown <= 3.402823466e+38f;
  return {finite ? grown : now.scale, 0};
}

/// What the kernels of a step read and write in device memory, so that neither the learning rate
/// nor an overflow passes through the host, and a captured graph can be replayed with other values.
struct StepState {
  static constexpr unsigned long long kNoneBad = ~0ULL;

  float learning_rate = 0;
  float clip_factor = 1;  ///< gradients are taken times this and over loss_scale.scale
  LossScale loss_scale;   ///< fp32 and bf16: stays 1
  bool scales = false;    ///< whether loss_scale follows next_loss_scale
  /// The smallest index of a tensor in the gradients' order that held a NaN or an infinity.
  unsigned long long first_bad = kNoneBad;
  std::int64_t skipped_steps = 0;
};

/// Whether the optimizer leaves this step out: it would carry what is not finite into the network.
GRADSYNC_HOST_DEVICE inline bool skips_step(const StepState& state) {
  return state.first_bad != StepState::kNoneBad;
}

GRADSYNC_HOST_DEVICE inline float gradient_factor(const StepState& state) {
  return state.clip_factor / state.loss_scale.scale;
}

/// A scale this low says that the numbers are bad, and not that they are too large: 17 overflows in
/// a row, from the start.
inline constexpr float kLowestLossScale = 1;

/// After the optimizer: the next step's scale, with nothing found bad yet.
GRADSYNC_HOST_DEVICE inline void finish_step(StepState& state) {
  const bool overflow = skips_step(state);
  if (overflow) ++state.skipped_steps;
  if (state.scales) state.loss_scale = next_loss_scale(state.loss_scale, overflow);
  state.first_bad = StepState::kNoneBad;
}

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

/// Lowers state->first_bad to the index of the first tensor whose gradient has a value that is not
/// finite.
void launch_find_bad(const SgdTensor* tensors, const SgdPart* parts, std::int64_t part_count,
                     StepState* state, StreamHandle stream);

/// What the next step is made with. No copy: a launch carries both values.
void launch_prepare(StepState* state, float learning_rate, float clip_factor, StreamHandle stream);

/// finish_step(*state).
void launch_finish_step(StepState* state, StreamHandle stream);

/// What `lowest` holds while nothing was found.
inline constexpr unsigned long long kNoAddress = ~0ULL;

/// Lowers *lowest to the address of the first value that is NaN or infinite. Values may be of any
/// message in any order: whose they are is looked up later, by address.
void launch_lowest_bad(const float* values, std::int64_t count, unsigned long long* lowest,
                       StreamHandle stream);
void lowest_bad_on_host(std::span<const float> values, unsigned long long& lowest);

/// values[i] *= factor.
void launch_scale(float* values, std::int64_t count, float factor, StreamHandle stream);
void scale_on_host(std::span<float> values, float factor);

/// A split of the data set as bytes, beside what they become: all in the memory of one device.
struct ResidentImages {
  const std::uint8_t* pixels;  ///< images × 3072, planes R, G, B
  const std::uint8_t* labels;
  const float* levels;  ///< 3 × 256: ImageTransform::levels()
};

/// The position in an epoch. In the device's memory, so that a captured step advances it.
struct EpochCursor {
  std::uint64_t seed;
  std::int64_t epoch;
  std::int64_t position;  ///< in the epoch's order of images
  std::int64_t augment;   ///< 0: images stay as they are
};

enum class ImageType { kFloat32, kBfloat16, kFloat16 };

/// A batch to be filled: count × 3072 values, aligned to 16 bytes, and count labels.
struct BatchMemory {
  void* images;
  std::int64_t* labels;
  std::int64_t count;
  ImageType type;
  bool channels_last;
};

/// Fills the batch with the images order[position], order[position + 1], …, placed by (seed, epoch,
/// image), and moves the cursor on. The values are those of the loader (data/loader.h), rounded to
/// the batch's type.
void launch_batch(const ResidentImages& data, const std::int64_t* order, EpochCursor* cursor,
                  const BatchMemory& batch, StreamHandle stream);
void batch_on_host(const ResidentImages& data, const std::int64_t* order, EpochCursor& cursor,
                   const BatchMemory& batch);

}  // namespace gradsync
