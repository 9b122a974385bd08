#pragma once

#include <cstdint>

#include "base/host_device.h"

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

}  // namespace gradsync
