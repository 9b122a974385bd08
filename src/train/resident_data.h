#pragma once

#include <torch/types.h>

#include "data/cifar10.h"
#include "machine/kernels.h"

namespace gradsync {

/// Both splits of the data set as bytes in the memory of a device: 3,073 bytes an image, 184 MB for
/// CIFAR-10. From there a kernel makes each batch, so no host thread loads and nothing is copied.
class ResidentData {
 public:
  /// Copies every image. Batches of a rank's own images are of `type`.
  ResidentData(const Cifar10& data, torch::Device device, ImageType type);

  ResidentImages images(Split split) const;
  const torch::Device& device() const { return device_; }
  ImageType type() const { return type_; }

 private:
  struct Bytes {
    torch::Tensor pixels, labels;
  };

  torch::Device device_;
  ImageType type_;
  Bytes train_, test_;
  torch::Tensor levels_;
};

torch::ScalarType scalar_type(ImageType type);

}  // namespace gradsync
