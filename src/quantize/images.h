#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/augment.h"
#include "data/cifar10.h"

namespace gradsync::quantize {

/// Images of a data set in their order, as a network takes them, not cropped nor flipped:
/// [image][row][column][channel] floats.
class ImageRange {
 public:
  /// Images `first` to `first + count` of a split. Throws Error kUsage if it has not so many.
  ImageRange(const Cifar10& data, Split split, std::int64_t count);

  std::int64_t count() const { return count_; }
  /// Images `first` … `first + images`.
  std::vector<float> load(std::int64_t first, std::int64_t images) const;
  /// The pixels of an image as 2·pixel/255 − 1, in the order of the file: what the published study
  /// feeds its network.
  std::vector<float> unit_pixels(std::int64_t image) const;
  std::int64_t label(std::int64_t image) const { return data_.label(split_, image); }

 private:
  const Cifar10& data_;
  Split split_;
  std::int64_t count_;
  ImageTransform transform_{Layout::kNhwc};
};

/// Of a study. The same for any number of ranks and threads: what a batch gives must not depend on
/// them.
inline constexpr std::int64_t kImagesAtOnce = 50;

/// Which batches of a range are whose: batch b of rank b mod ranks, always with the same images in
/// it, so that neither ranks nor threads change what a batch gives.
struct ImageBatch {
  std::int64_t first = 0, count = 0;
};
std::vector<ImageBatch> batches_of_rank(std::int64_t images, std::int64_t batch, int rank,
                                        int ranks);

}  // namespace gradsync::quantize
