// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/cli/program_help.h"
#include "quantize/calibrator.h"

namespace gradsync::quantize {

/// How activations become integers.
struct ActivationScheme {
  Convention convention = Convention::kAffine;
  CalibratorSettings calibrator = {Calibrator::kPercentile};
  int bits = 8;

  /// "affine, percentile 99.99".
  std::string text() const;
};

struct QuantizeOptions {
  std::string checkpoint;  ///< a file, or a folder of checkpoints
  std::string model;       ///< empty: what the checkpoint says
  std::string data = "data/cifar-10";
  WeightScheme weights;
  bool weight_range_by_sigma = false;  ///< for weights.sigmas
  ActivationScheme activations;
  std::int64_t calibration_images = 1000;
  std::int64_t test_images = 0;  ///< 0: all
  bool ablation = true;
  std::int64_t threads = 0;  ///< 0: the cores of this rank
  std::string output, save;
};

OptionTable quantize_option_table();
ProgramHelp quantize_help();

/// Throws Error kUsage with the option, its value, its source and what would be right.
QuantizeOptions quantize_options(const OptionValues& values);

}  // namespace gradsync::quantize
