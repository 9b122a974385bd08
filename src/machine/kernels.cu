// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "machine/kernel_math.h"
#include "machine/kernels.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;
/// Accesses of 16 bytes: fewer instructions a byte, and more bytes on their way.
constexpr int kVectorBytes = 16;

GRADSYNC_HOST_DEVICE bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

/// Requires is_aligned(values).
__device__ float4& as_float4(float* values) {
  return *reinterpret_cast<float4*>(values);
}

__device__ const float4& as_float4(const float* values) {
  return *reinterpret_cast<const float4*>(values);
}

/// Blocks for `items`, which the threads process in a grid-stride loop: enough to fill any GPU
/// several times over.
unsigned blocks_for(std::int64_t items) {
  constexpr std::int64_t kMost = 4096;
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

cudaStream_t stream_of(StreamHandle stream) {
  return static_cast<cudaStream_t>(stream);
}

/// Call after a launch. Throws Error kEnvironment, naming the kernel and CUDA's reason, if it was
/// refused, and kOutOfMemory if memory ran out.
void require_launched(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  const std::string what = std::string("kernel ") + kernel + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation)
    throw Error(ExitCode::kOutOfMemory, what, "lower --batch-per-rank");
  const bool other_architecture =
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion;
  throw Error(ExitCode::kEnvironment, what,
              other_architecture ? "make CUDA_ARCHS=\"80 90 …\" with this GPU's architecture" : "");
}

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
  kernel<<<static_cast<unsigned>(part_count), kThreads, 0, stream_of(stream)>>>(tensors, parts,
                                                                                rule, state);
  require_launched("sgd");
}

void launch_prepare(StepState* state, float learning_rate, float clip_factor, StreamHandle stream) {
  prepare<<<1, 1, 0, stream_of(stream)>>>(state, learning_rate, clip_factor);
  require_launched("prepare");
}

void launch_finish_step(StepState* state, StreamHandle stream) {
  finish<<<1, 1, 0, stream_of(stream)>>>(state);
  require_launched("finish_step");
}

namespace {

/// Reports the first bad value that each thread finds: its indices rise, so it is its lowest.
__global__ void __launch_bounds__(kThreads)
    lowest_bad(const float* values, std::int64_t fours, std::int64_t count,
               unsigned long long* lowest) {
  const auto report = [&](std::int64_t index) {
    atomicMin(lowest,
              static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(values + index)));
  };
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
#pragma unroll 4
  for (std::int64_t i = thread; i < fours; i += threads) {
    const float4 four = as_float4(values + 4 * i);
    // Bad values are rare: which of the four it was is looked at again.
    if (!(is_bad(four.x) || is_bad(four.y) || is_bad(four.z) || is_bad(four.w))) continue;
    std::int64_t index = 4 * i;
    while (!is_bad(values[index]))
      ++index;
    return report(index);
  }
  for (std::int64_t i = 4 * fours + thread; i < count; i += threads)
    if (is_bad(values[i])) return report(i);
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
  find_bad_part<<<static_cast<unsigned>(part_count), kThreads, 0, stream_of(stream)>>>(
      tensors, parts, state);
  require_launched("find_bad_part");
}

void launch_lowest_bad(const float* values, std::int64_t count, unsigned long long* lowest,
                       StreamHandle stream) {
  if (count == 0) return;
  const std::int64_t fours = is_aligned(values) ? count / 4 : 0;
  lowest_bad<<<blocks_for(fours > 0 ? fours : count), kThreads, 0, stream_of(stream)>>>(
      values, fours, count, lowest);
  require_launched("lowest_bad");
}

namespace {

__global__ void __launch_bounds__(kThreads) scale(float* values, std::int64_t count, float factor) {
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += threads)
    values[i] *= factor;
}

}  // namespace

void launch_scale(float* values, std::int64_t count, float factor, StreamHandle stream) {
  if (count == 0) return;
  scale<<<blocks_for(count), kThreads, 0, stream_of(stream)>>>(values, count, factor);
  require_launched("scale");
}

namespace {

constexpr int kAtOnce = 8;  ///< values in 16 bytes of the wire

/// 16 bytes of the wire.
struct alignas(kVectorBytes) Eight {
  std::uint16_t half[kAtOnce];
};

/// half = value · factor.
template <HalfType kType>
struct Pack {
  using From = float;
  using To = std::uint16_t;

  static __device__ To one(From value, float factor) { return to_half(value * factor, kType); }

  static __device__ void eight(const From* values, To* wire, float factor) {
    const float4 low = as_float4(values), high = as_float4(values + 4);
    const float all[kAtOnce] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    Eight out;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      out.half[k] = one(all[k], factor);
    *reinterpret_cast<Eight*>(wire) = out;
  }
};

/// value = half · factor.
template <HalfType kType>
struct Unpack {
  using From = std::uint16_t;
  using To = float;

  static __device__ To one(From half, float factor) { return from_half(half, kType) * factor; }

  static __device__ void eight(const From* wire, To* values, float factor) {
    const Eight in = *reinterpret_cast<const Eight*>(wire);
    float all[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      all[k] = one(in.half[k], factor);
    as_float4(values) = make_float4(all[0], all[1], all[2], all[3]);
    as_float4(values + 4) = make_float4(all[4], all[5], all[6], all[7]);
  }
};

/// `eights` groups of eight aligned values, then one by one up to `count`.
template <typename Conversion>
__global__ void __launch_bounds__(kThreads)
    convert(const typename Conversion::From* from, typename Conversion::To* to, std::int64_t eights,
            std::int64_t count, float factor) {
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  for (std::int64_t i = thread; i < eights; i += threads)
    Conversion::eight(from + kAtOnce * i, to + kAtOnce * i, factor);
  for (std::int64_t i = kAtOnce * eights + thread; i < count; i += threads)
    to[i] = Conversion::one(from[i], factor);
}

template <typename Conversion>
void launch(const typename Conversion::From* from, typename Conversion::To* to, std::int64_t count,
            float factor, StreamHandle stream) {
  if (count == 0) return;
  // A bucket may begin at any value of the flat buffer.
  const std::int64_t eights = is_aligned(from) && is_aligned(to) ? count / kAtOnce : 0;
  convert<Conversion><<<blocks_for(eights > 0 ? eights : count), kThreads, 0, stream_of(stream)>>>(
      from, to, eights, count, factor);
  require_launched("wire");
}

}  // namespace

void launch_pack(const float* values, std::uint16_t* wire, std::int64_t count, float factor,
                 HalfType type, StreamHandle stream) {
  if (type == HalfType::kBfloat16)
    launch<Pack<HalfType::kBfloat16>>(values, wire, count, factor, stream);
  else
    launch<Pack<HalfType::kFloat16>>(values, wire, count, factor, stream);
}

void launch_unpack(const std::uint16_t* wire, float* values, std::int64_t count, float factor,
                   HalfType type, StreamHandle stream) {
  if (type == HalfType::kBfloat16)
    launch<Unpack<HalfType::kBfloat16>>(wire, values, count, factor, stream);
  else
    launch<Unpack<HalfType::kFloat16>>(wire, values, count, factor, stream);
}

namespace {

constexpr int kImageThreads = 192;  // each loads 16 of an image's 3072 bytes
constexpr int kLevels = 3 * 256;
static_assert(kImageThreads * kVectorBytes == kImageValues);

/// A block an image. Its bytes and the levels are looked up at random, so they lie in shared
/// memory.
template <ImageType kType, bool kChannelsLast>
__global__ void __launch_bounds__(kImageThreads)
    fill(ResidentImages data, const std::int64_t* order, const EpochCursor* cursor, void* images,
         std::int64_t* labels) {
  __shared__ uint4 bytes[kImageThreads];
  __shared__ float levels[kLevels];
  const std::int64_t image = order[cursor->position + blockIdx.x];
  bytes[threadIdx.x] =
      reinterpret_cast<const uint4*>(data.pixels + image * kImageValues)[threadIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < kLevels; i += kImageThreads)
    levels[i] = data.levels[i];
  const Placement placement = placement_of(*cursor, image);
  __syncthreads();

  using Value = ImageValue<kType>;
  constexpr int kAtOnce = kVectorBytes / static_cast<int>(sizeof(Value));
  struct alignas(kVectorBytes) Values {
    Value at[kAtOnce];
  };
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(bytes);
  auto* out = reinterpret_cast<Values*>(static_cast<Value*>(images) +
                                        std::int64_t{blockIdx.x} * kImageValues);
  for (int group = static_cast<int>(threadIdx.x); group < kImageValues / kAtOnce;
       group += kImageThreads) {
    Values values;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      values.at[k] = image_value<kType>(augmented_pixel(
          pixels, levels, placement, pixel_place(group * kAtOnce + k, kChannelsLast)));
    out[group] = values;
  }
  if (threadIdx.x == 0) labels[blockIdx.x] = data.labels[image];
}

__global__ void advance(EpochCursor* cursor, std::int64_t images) {
  cursor->position += images;
}

template <ImageType kType>
auto kernel_of(bool channels_last) {
  return channels_last ? fill<kType, true> : fill<kType, false>;
}

auto kernel_of(const BatchMemory& batch) {
  if (batch.type == ImageType::kFloat32) return kernel_of<ImageType::kFloat32>(batch.channels_last);
  return batch.type == ImageType::kBfloat16 ? kernel_of<ImageType::kBfloat16>(batch.channels_last)
                                            : kernel_of<ImageType::kFloat16>(batch.channels_last);
}

}  // namespace

void launch_batch(const ResidentImages& data, const std::int64_t* order, EpochCursor* cursor,
                  const BatchMemory& batch, StreamHandle stream) {
  if (batch.count == 0) return;
  const cudaStream_t on = stream_of(stream);
  kernel_of(batch)<<<static_cast<unsigned>(batch.count), kImageThreads, 0, on>>>(
      data, order, cursor, batch.images, batch.labels);
  require_launched("augment");
  advance<<<1, 1, 0, on>>>(cursor, batch.count);
  require_launched("advance");
}

}  // namespace gradsync
