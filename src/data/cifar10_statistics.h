#pragma once

#include <array>

#include "data/cifar10.h"

namespace gradsync {

/// Mean and standard deviation of the red, green and blue values of the training images, each
/// divided by 255.
struct ChannelStatistics {
  std::array<double, 3> mean{}, deviation{};
};

ChannelStatistics channel_statistics(const Cifar10& data);

/// Whether the statistics are those of CIFAR-10 to what an image loses by being encoded again. They
/// do not depend on the order of the images.
bool are_those_of_cifar10(const ChannelStatistics& statistics);

/// Whether the files hold the images of CIFAR-10, though maybe in another order or encoded again:
/// as many of each class, and their channel statistics. Reads all images.
bool has_cifar10_images(const Cifar10& data);

}  // namespace gradsync
