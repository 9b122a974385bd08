#include <cstring>

#include "data/augment.h"
#include "train/resident_data.h"

namespace gradsync {

namespace {

torch::Tensor pixels_of(const Cifar10& data, Split split) {
  const std::int64_t size = data.size(split);
  torch::Tensor pixels =
      torch::empty({size, static_cast<std::int64_t>(kImageBytes)}, torch::kUInt8);
  for (std::int64_t image = 0; image < size; ++image)
    std::memcpy(pixels.data_ptr<std::uint8_t>() + image * static_cast<std::int64_t>(kImageBytes),
                data.pixels(split, image).data(), kImageBytes);
  return pixels;
}

torch::Tensor labels_of(const Cifar10& data, Split split) {
  torch::Tensor labels = torch::empty({data.size(split)}, torch::kUInt8);
  for (std::int64_t image = 0; image < labels.numel(); ++image)
    labels.data_ptr<std::uint8_t>()[image] = static_cast<std::uint8_t>(data.label(split, image));
  return labels;
}

torch::Tensor levels_of_bytes() {
  const auto levels = ImageTransform(Layout::kNchw).levels();
  std::vector<float> all;
  for (const auto& channel : levels)
    all.insert(all.end(), channel.begin(), channel.end());
  return torch::tensor(all);
}

}  // namespace

ResidentData::ResidentData(const Cifar10& data, torch::Device device, ImageType type)
    : device_(device),
      type_(type),
      train_{pixels_of(data, Split::kTrain).to(device), labels_of(data, Split::kTrain).to(device)},
      test_{pixels_of(data, Split::kTest).to(device), labels_of(data, Split::kTest).to(device)},
      levels_(levels_of_bytes().to(device)) {}

ResidentImages ResidentData::images(Split split) const {
  const Bytes& bytes = split == Split::kTrain ? train_ : test_;
  return {bytes.pixels.const_data_ptr<std::uint8_t>(), bytes.labels.const_data_ptr<std::uint8_t>(),
          levels_.const_data_ptr<float>()};
}

torch::ScalarType scalar_type(ImageType type) {
  if (type == ImageType::kFloat32) return torch::kFloat32;
  return type == ImageType::kBfloat16 ? torch::kBFloat16 : torch::kHalf;
}

}  // namespace gradsync
