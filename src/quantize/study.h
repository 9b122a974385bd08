#pragma once

#include <memory>

#include "quantize/accuracy.h"
#include "quantize/quantize_options.h"
#include "record/run.h"

namespace gradsync::quantize {

/// The steps of a quantization, in their order. Results are equal on all ranks; every function is
/// collective.
class Study {
 public:
  Study(StudyRanks ranks, const QuantizeOptions& options, FloatModel model,
        std::int64_t float_bytes, const ImageRange& calibration, const ImageRange& test);

  /// Looks at weights and activations and chooses their integers.
  void calibrate();
  /// Accuracy of fp32, of quantized weights, of activations too, of biases too: both paths.
  /// Throws Error kCheckFailed if the paths differ for an image.
  void judge_steps();
  /// Accuracy of other choices.
  void judge_variants();

  const FloatModel& model() const { return model_; }
  const Int8Model& quantized() const { return quantized_; }
  Quantization& results() { return results_; }

 private:
  void add_step(const std::string& kind, const std::string& name, const Verdicts& verdicts,
                const QuantizedStepRow& how);
  enum class Logits { kReal, kIntegers };
  void add_variant(const std::string& name, const WeightScheme& weights,
                   const ActivationScheme& activations, Logits logits = Logits::kReal);
  QuantizedStepRow how(bool weights, bool activations, bool bias) const;

  StudyRanks ranks_;
  const QuantizeOptions& options_;
  FloatModel model_;
  std::int64_t float_bytes_;
  const ImageRange &calibration_, &test_;
  ValueDistributions values_;
  Int8Model quantized_;
  Quantization results_;
};

}  // namespace gradsync::quantize
