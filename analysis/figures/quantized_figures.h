// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>
#include <vector>

#include "analysis/read/run_set.h"

namespace gradsync::report {

/// Percent of the test images that a step or variant classified right.
double accuracy_percent(const QuantizedStepRow& row);

/// Percentage points below the network in single precision, the first step; NaN without one.
double drop_points(const Quantization& of, const QuantizedStepRow& row);

/// Bytes over those of the network in single precision; NaN where the row has none.
double size_ratio(const Quantization& of, const QuantizedStepRow& row);

/// The tensors of one role, in the order of the layers.
std::vector<const QuantizedTensorRow*> tensors_of(const Quantization& of, const std::string& role);

/// A row of the ranges that the published study of LeNet prints (results/published/ranges.csv):
/// extremes and mean ± 3 deviations of the images, scaled to −1 … 1, and of what the next layer
/// takes: of a convolution after its ReLU and maximum.
struct PublishedRange {
  const char* layer;
  const char* role;  ///< of the row of a run that it is compared with
  double minimum, maximum, sigma_low, sigma_high;
};
inline constexpr std::array<PublishedRange, 6> kPublishedRanges = {{
    {"input", "pixels", -1.0000, 1.0000, -1.5618, 1.4560},
    {"conv1", "pooled", 0.0000, 9.6383, -1.9290, 3.0603},
    {"conv2", "pooled", 0.0000, 14.1339, -2.7353, 4.0610},
    {"fc1", "activation", 0.0000, 11.2787, -2.3141, 3.1560},
    {"fc2", "activation", 0.0000, 5.4686, -1.5531, 2.2252},
    {"fc3", "activation", -6.1661, 8.6315, -5.8402, 5.7733},
}};

/// The published row beside a recorded one of LeNet, or null.
const PublishedRange* published_range(const Run& run, const QuantizedTensorRow& row);

}  // namespace gradsync::report
