// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "data/augment.h"
#include "data/cifar10.h"
#include "exchange/exchange.h"
#include "quantize/calibrator.h"
#include "quantize/int8_model.h"
#include "quantize/quantize_options.h"
#include "quantize/scale.h"
#include "record/run.h"

/// The images of a study, and how ranks and threads share them out.
namespace gradsync::quantize {

/// Images of a data set in their order, as a network takes them, not cropped nor flipped:
/// [image][row][column][channel] floats.
class ImageRange {
 public:
  /// The first `count` images of a split. Throws Error kUsage if it has not so many.
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

/// Ranks and threads that share a study.
struct StudyRanks {
  Exchange& exchange;
  std::size_t threads = 1;
};

/// Work on a batch whose first image is `first`, by worker 0 … threads − 1 of this rank.
using BatchWork =
    std::function<void(std::size_t worker, std::int64_t first, const torch::Tensor& images)>;

/// Calls `work` for each batch of this rank, in several threads, each of which computes alone. A
/// batch holds the same images for any number of ranks and threads, so that neither changes what it
/// gives. Collective; throws what `work` throws on all ranks.
void for_each_batch(const StudyRanks& ranks, const ImageRange& images, const BatchWork& work);

/// Sums over all ranks, in place; exact and independent of the order. Collective.
void add_over_ranks(Exchange& exchange, std::span<std::int64_t* const> integers);

/// The extremes over all ranks, in place; an empty range (low > high) counts for nothing.
/// Collective.
void widen_over_ranks(Exchange& exchange, std::vector<Range>& ranges);

/// The smallest range that holds `range` and `by`; an empty one counts for nothing.
void widen(Range& range, const Range& by);

/// The steps of a quantization, in their order. Results are equal on all ranks, to the bit,
/// whatever their number and that of threads; every function is collective.
class Study {
 public:
  Study(StudyRanks ranks, const QuantizeOptions& options, FloatModel model,
        std::int64_t float_bytes, const ImageRange& calibration, const ImageRange& test);

  /// Looks at weights and activations and chooses their integers. Throws Error kBadData, naming the
  /// layer, if an activation is not finite, or all activations of a layer are the same.
  void calibrate();
  /// Accuracy of fp32, of quantized weights, of activations too, of biases too.
  void judge_steps();
  /// Accuracy of other choices. A variant that cannot be quantized is left out, with a warning.
  void judge_variants();

  const FloatModel& model() const { return model_; }
  const Int8Model& quantized() const { return quantized_; }
  const Quantization& results() const { return results_; }

 private:
  enum class Logits { kReal, kIntegers };
  void observe_activations();
  ValueQuantizers quantize_values(const ActivationScheme& scheme) const;
  void add_activation_rows();
  void add_variant(const std::string& name, const WeightScheme& weights,
                   const ActivationScheme& activations, Logits logits = Logits::kReal);

  StudyRanks ranks_;
  const QuantizeOptions& options_;
  FloatModel model_;
  std::int64_t float_bytes_;
  const ImageRange &calibration_, &test_;
  std::vector<Distribution> values_;  ///< of the activations, one a value of the plan
  Int8Model quantized_;
  Quantization results_;
};

}  // namespace gradsync::quantize
