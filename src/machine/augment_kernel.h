#pragma once

#include <cstdint>

#include "machine/stream_handle.h"

namespace gradsync {

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
/// the batch's type. All pointers are device memory; see kernels.h on launches.
void launch_batch(const ResidentImages& data, const std::int64_t* order, EpochCursor* cursor,
                  const BatchMemory& batch, StreamHandle stream);
/// The same on the CPU, in host memory.
void batch_on_host(const ResidentImages& data, const std::int64_t* order, EpochCursor& cursor,
                   const BatchMemory& batch);

}  // namespace gradsync
