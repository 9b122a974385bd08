#pragma once

#include <string>
#include <vector>

#include "quantize/calibrator.h"
#include "quantize/int8_model.h"
#include "quantize/quantize_options.h"
#include "quantize/study_images.h"
#include "record/run.h"

namespace gradsync::quantize {

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
  /// Accuracy of other choices.
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
