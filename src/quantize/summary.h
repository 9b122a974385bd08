#pragma once

#include <string>
#include <vector>

#include "base/table.h"
#include "data/cifar10.h"
#include "quantize/plan.h"
#include "quantize/quantize_options.h"
#include "record/run.h"

namespace gradsync::quantize {

/// What is quantized, how and with which images: some lines for people.
std::string head_text(const Plan& plan, const QuantizeOptions& options,
                      std::int64_t calibration_images, std::int64_t test_images,
                      const DataDigest& data);

/// The tables of a finished study: layers, accuracy after each step and in each variant, speed.
std::vector<Table> result_tables(const Quantization& results);

}  // namespace gradsync::quantize
