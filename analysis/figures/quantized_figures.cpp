// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/quantized_figures.h"

#include <algorithm>

namespace gradsync::report {

double accuracy_percent(const QuantizedStepRow& row) {
  if (row.images <= 0) return kNotMeasured;
  return 1e2 * static_cast<double>(row.correct) / static_cast<double>(row.images);
}

double drop_points(const Quantization& of, const QuantizedStepRow& row) {
  if (of.steps.empty() || of.steps.front().name != "fp32") return kNotMeasured;
  return accuracy_percent(of.steps.front()) - accuracy_percent(row);
}

double size_ratio(const Quantization& of, const QuantizedStepRow& row) {
  if (of.steps.empty() || of.steps.front().model_bytes <= 0 || row.model_bytes < 0)
    return kNotMeasured;
  return static_cast<double>(row.model_bytes) / static_cast<double>(of.steps.front().model_bytes);
}

std::vector<const QuantizedTensorRow*> tensors_of(const Quantization& of, const std::string& role) {
  std::vector<const QuantizedTensorRow*> rows;
  for (const QuantizedTensorRow& row : of.tensors)
    if (row.role == role) rows.push_back(&row);
  return rows;
}

const PublishedRange* published_range(const Run& run, const QuantizedTensorRow& row) {
  if (!run.model.starts_with("lenet")) return nullptr;
  const auto found = std::ranges::find_if(kPublishedRanges, [&](const PublishedRange& one) {
    return one.layer == row.layer && one.role == row.role;
  });
  return found == kPublishedRanges.end() ? nullptr : &*found;
}

}  // namespace gradsync::report
