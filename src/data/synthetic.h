#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "data/cifar10.h"

namespace gradsync {

inline constexpr std::int64_t kMostSyntheticImages = 10'000'000;

/// Writes a data set in CIFAR-10's binary format whose images a network can learn: five training
/// files that share `train_images` as evenly as possible, test_batch.bin, batches.meta.txt and the
/// manifest. Written beside `folder` and renamed when whole.
///
/// An image is a grating whose direction (5) and stripe width (2) define its class, both blurred
/// from image to image, mirrored or not, at a random phase and contrast, with a tint that leans a
/// little towards the class, a second grating that means nothing, and noise. Integer arithmetic
/// throughout: one seed gives the same bytes on every machine.
///
/// Throws Error kUsage if a count is not in 1 … kMostSyntheticImages, kCannotCreate if `folder`
/// exists.
void synthesize(const std::filesystem::path& folder, std::uint64_t seed, std::int64_t train_images,
                std::int64_t test_images);

/// One record (label byte and 3072 pixels) of the set above, into `record` (kRecordBytes bytes).
void synthesize_record(std::uint64_t seed, Split split, std::int64_t image,
                       std::span<std::byte> record);

}  // namespace gradsync
