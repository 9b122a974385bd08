#include "data/cifar10_statistics.h"

#include <algorithm>
#include <cmath>

#include "data/augment.h"

namespace gradsync {
namespace {

constexpr std::int64_t kTrainOfClass = 5'000, kTestOfClass = 1'000;
constexpr std::size_t kChannelBytes = kImageBytes / 3;

// One pass through JPEG changes those of CIFAR-10 by up to 0.0002 and 0.0018.
constexpr double kMeanTolerance = 0.001, kDeviationTolerance = 0.004;

struct Sums {
  std::uint64_t values = 0, squares = 0;
};

void add(std::span<const std::byte> channel, Sums& sums) {
  std::uint64_t values = 0, squares = 0;
  for (const std::byte byte : channel) {
    const auto value = std::to_integer<std::uint64_t>(byte);
    values += value;
    squares += value * value;
  }
  sums.values += values;
  sums.squares += squares;
}

bool all_are(const std::array<std::int64_t, kClasses>& counts, std::int64_t count) {
  return std::ranges::all_of(counts, [&](std::int64_t one) { return one == count; });
}

}  // namespace

ChannelStatistics channel_statistics(const Cifar10& data) {
  std::array<Sums, 3> sums{};
  const std::int64_t images = data.size(Split::kTrain);
  for (std::int64_t image = 0; image < images; ++image)
    for (std::size_t channel = 0; channel < 3; ++channel)
      add(data.pixels(Split::kTrain, image).subspan(channel * kChannelBytes, kChannelBytes),
          sums[channel]);
  ChannelStatistics statistics;
  const double count = static_cast<double>(images) * kChannelBytes;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double mean = static_cast<double>(sums[channel].values) / count;
    const double square = static_cast<double>(sums[channel].squares) / count;
    statistics.mean[channel] = mean / 255;
    statistics.deviation[channel] = std::sqrt(std::max(0.0, square - mean * mean)) / 255;
  }
  return statistics;
}

bool are_those_of_cifar10(const ChannelStatistics& statistics) {
  for (std::size_t channel = 0; channel < 3; ++channel)
    if (!(std::abs(statistics.mean[channel] - kMean[channel]) <= kMeanTolerance) ||
        !(std::abs(statistics.deviation[channel] - kStandardDeviation[channel]) <=
          kDeviationTolerance))
      return false;
  return true;
}

bool has_cifar10_images(const Cifar10& data) {
  return all_are(data.class_counts(Split::kTrain), kTrainOfClass) &&
         all_are(data.class_counts(Split::kTest), kTestOfClass) &&
         are_those_of_cifar10(channel_statistics(data));
}

}  // namespace gradsync
