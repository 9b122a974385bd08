// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/error.h"
#include "machine/kernel_math.h"
#include "machine/kernels.h"

namespace gradsync {

std::vector<SgdPart> sgd_parts(std::span<const SgdTensor> tensors) {
  std::vector<SgdPart> parts;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor)
    for (std::int64_t begin = 0; begin < tensors[tensor].count; begin += kSgdPart)
      parts.push_back(
          {static_cast<std::int32_t>(tensor), static_cast<std::int32_t>(begin / kSgdPart)});
  return parts;
}

void sgd_on_host(std::span<const SgdTensor> tensors, const SgdRule& rule, const StepState& state) {
  const SgdFactors factors{state.learning_rate, gradient_factor(state), rule.momentum,
                           rule.weight_decay};
  const auto update = rule.nesterov ? sgd_update<true> : sgd_update<false>;
  for (const SgdTensor& tensor : tensors) {
    if (skips_step(state)) {
      std::fill_n(tensor.gradient, tensor.count, 0.0f);
      continue;
    }
    for (std::int64_t i = 0; i < tensor.count; ++i)
      update(tensor.parameter[i], tensor.gradient[i], tensor.velocity[i], factors);
  }
}

void pack_on_host(std::span<const float> values, std::span<std::uint16_t> wire, float factor,
                  HalfType type) {
  // A loop for each type, which the compiler turns into vector instructions.
  if (type == HalfType::kBfloat16)
    for (std::size_t i = 0; i < values.size(); ++i)
      wire[i] = to_bf16(values[i] * factor);
  else
    for (std::size_t i = 0; i < values.size(); ++i)
      wire[i] = to_fp16(values[i] * factor);
}

void unpack_on_host(std::span<const std::uint16_t> wire, std::span<float> values, float factor,
                    HalfType type) {
  if (type == HalfType::kBfloat16)
    for (std::size_t i = 0; i < wire.size(); ++i)
      values[i] = from_bf16(wire[i]) * factor;
  else
    for (std::size_t i = 0; i < wire.size(); ++i)
      values[i] = from_fp16(wire[i]) * factor;
}

void lowest_bad_on_host(std::span<const float> values, unsigned long long& lowest) {
  const auto bad = std::ranges::find_if(values, is_bad);
  if (bad == values.end()) return;
  const float* first = values.data() + (bad - values.begin());
  lowest =
      std::min(lowest, static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(first)));
}

void scale_on_host(std::span<float> values, float factor) {
  for (float& value : values)
    value *= factor;
}

namespace {

template <ImageType kType>
void fill(const ResidentImages& data, const std::int64_t* order, const EpochCursor& cursor,
          const BatchMemory& batch) {
  auto* out = static_cast<ImageValue<kType>*>(batch.images);
  for (std::int64_t i = 0; i < batch.count; ++i) {
    const std::int64_t image = order[cursor.position + i];
    const Placement placement = placement_of(cursor, image);
    const std::uint8_t* pixels = data.pixels + image * kImageValues;
    for (int index = 0; index < kImageValues; ++index)
      out[i * kImageValues + index] = image_value<kType>(
          augmented_pixel(pixels, data.levels, placement, pixel_place(index, batch.channels_last)));
    batch.labels[i] = data.labels[image];
  }
}

}  // namespace

void batch_on_host(const ResidentImages& data, const std::int64_t* order, EpochCursor& cursor,
                   const BatchMemory& batch) {
  switch (batch.type) {
    case ImageType::kFloat32:
      fill<ImageType::kFloat32>(data, order, cursor, batch);
      break;
    case ImageType::kBfloat16:
      fill<ImageType::kBfloat16>(data, order, cursor, batch);
      break;
    case ImageType::kFloat16:
      fill<ImageType::kFloat16>(data, order, cursor, batch);
      break;
  }
  cursor.position += batch.count;
}

#if !GRADSYNC_WITH_CUDA

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

#endif

}  // namespace gradsync
