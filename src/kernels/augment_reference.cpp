#include "kernels/augment.h"
#include "kernels/augmented_pixel.h"
#include "kernels/image_value.h"

namespace gradsync {

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

}  // namespace gradsync
