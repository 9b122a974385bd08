#include "machine/augment_kernel.h"
#include "machine/augmented_pixel.h"
#include "machine/image_value.h"
#include "machine/launch.h"
#include "machine/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 192;  // each loads 16 of an image's 3072 bytes
constexpr int kLevels = 3 * 256;
static_assert(kThreads * kVectorBytes == kImageValues);

/// A block an image. Its bytes and the levels are looked up at random, so they lie in shared
/// memory.
template <ImageType kType, bool kChannelsLast>
__global__ void __launch_bounds__(kThreads)
    fill(ResidentImages data, const std::int64_t* order, const EpochCursor* cursor, void* images,
         std::int64_t* labels) {
  __shared__ uint4 bytes[kThreads];
  __shared__ float levels[kLevels];
  const std::int64_t image = order[cursor->position + blockIdx.x];
  bytes[threadIdx.x] =
      reinterpret_cast<const uint4*>(data.pixels + image * kImageValues)[threadIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < kLevels; i += kThreads)
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
       group += kThreads) {
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
  const auto on = static_cast<cudaStream_t>(stream);
  kernel_of(batch)<<<static_cast<unsigned>(batch.count), kThreads, 0, on>>>(
      data, order, cursor, batch.images, batch.labels);
  require_launched("augment");
  advance<<<1, 1, 0, on>>>(cursor, batch.count);
  require_launched("advance");
}

}  // namespace gradsync
