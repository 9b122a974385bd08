#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "quantize/study.h"

namespace gradsync::quantize {

namespace {

const std::string kUntouched = "fp32";

/// The same network with the numbers that its integer weights stand for.
FloatModel with_quantized_weights(const FloatModel& model, const WeightScheme& scheme) {
  FloatModel result = model;
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i)
    if (model.plan.weighted(i))
      result.layers[i].weights = dequantized(
          quantize_weights(model.layers[i].weights, model.plan.nodes[i].out_channels, scheme));
  return result;
}

std::string bits_text(const std::string& how, int bits) {
  return fmt::format("int{}, {}", bits, how);
}

}  // namespace

Study::Study(StudyRanks ranks, const QuantizeOptions& options, FloatModel model,
             std::int64_t float_bytes, const ImageRange& calibration, const ImageRange& test)
    : ranks_(ranks),
      options_(options),
      model_(std::move(model)),
      float_bytes_(float_bytes),
      calibration_(calibration),
      test_(test) {}

void Study::calibrate() {
  values_ = observe_activations(ranks_, model_, calibration_);
  ranks_.exchange.session().together([&] {
    const ValueQuantizers quantizers = quantize_values(model_.plan, values_, options_.activations);
    quantized_ = quantize_model(model_, options_.weights, quantizers);
  });
  results_.tensors = parameter_rows(model_, quantized_);
  const auto activations = activation_rows(model_, quantized_, values_, calibration_);
  results_.tensors.insert(results_.tensors.end(), activations.begin(), activations.end());
}

QuantizedStepRow Study::how(bool weights, bool activations, bool bias) const {
  QuantizedStepRow row;
  row.weights = weights ? bits_text(options_.weights.text(), options_.weights.bits) : kUntouched;
  row.activations =
      activations ? bits_text(options_.activations.text(), options_.activations.bits) : kUntouched;
  row.bias = bias ? "int32" : kUntouched;
  return row;
}

void Study::add_step(const std::string& kind, const std::string& name, const Verdicts& verdicts,
                     const QuantizedStepRow& how) {
  QuantizedStepRow row = how;
  row.kind = kind;
  row.name = name;
  row.images = verdicts.images;
  row.correct = verdicts.correct;
  results_.steps.push_back(row);
}

void Study::judge_steps() {
  add_step("step", "fp32", judge(ranks_, model_, test_), how(false, false, false));
  results_.steps.back().model_bytes = float_bytes_;
  add_step("step", "weights",
           judge(ranks_, with_quantized_weights(model_, options_.weights), test_),
           how(true, false, false));
  add_step("step", "weights and activations", judge_emulated(ranks_, quantized_, model_, test_),
           how(true, true, false));
  const Verdicts both = judge_both(ranks_, quantized_, test_);
  add_step("step", "all, with bias", both, how(true, true, true));
  results_.steps.back().model_bytes = int8_bytes(quantized_);
  results_.steps.back().agreeing = both.agreeing;
  if (both.agreeing != both.images)
    throw Error(
        ExitCode::kCheckFailed,
        fmt::format("integers in floating point and int8 kernels differ for {} of {} images",
                    both.images - both.agreeing, both.images),
        "internal error: please report it with the output of --version");
}

void Study::add_variant(const std::string& name, const WeightScheme& weights,
                        const ActivationScheme& activations, Logits logits) {
  const Int8Model model =
      quantize_model(model_, weights, quantize_values(model_.plan, values_, activations));
  std::optional<Quantizer> rounded;
  if (logits == Logits::kIntegers) rounded = quantize_logits(model_.plan, values_, activations);
  QuantizedStepRow row;
  row.weights = bits_text(weights.text(), weights.bits);
  row.activations = bits_text(activations.text(), activations.bits);
  row.bias = "int32";
  add_step("ablation", name, judge_int8(ranks_, model, test_, rounded), row);
}

void Study::judge_variants() {
  const WeightScheme& weights = options_.weights;
  const ActivationScheme& activations = options_.activations;
  for (const Granularity granularity : {Granularity::kChannel, Granularity::kTensor})
    for (const double sigmas : {0.0, 3.0}) {
      WeightScheme other = weights;
      other.granularity = granularity;
      other.sigmas = sigmas;
      add_variant(fmt::format("weights per {}, {}",
                              granularity == Granularity::kTensor ? "tensor" : "channel",
                              sigmas == 0 ? "total range" : "3-sigma range"),
                  other, activations);
    }
  for (const std::string& name : calibrator_names()) {
    ActivationScheme other = activations;
    other.calibrator.how = parse_calibrator(name);
    add_variant("calibrator " + name, weights, other);
  }
  for (const std::string& name : convention_names()) {
    WeightScheme other = weights;
    ActivationScheme more = activations;
    other.convention = more.convention = parse_convention(name);
    add_variant("convention " + name, other, more);
  }
  add_variant("logits in integers", weights, activations, Logits::kIntegers);
  // The published study: one scale a tensor, (max − min)/127, total range or 3 sigma, and integers
  // of the last layer's output too.
  for (const double sigmas : {0.0, 3.0}) {
    WeightScheme other{Convention::kPublished, Granularity::kTensor, weights.bits, sigmas};
    ActivationScheme more{Convention::kPublished, {}, activations.bits};
    more.calibrator.how = sigmas == 0 ? Calibrator::kMinMax : Calibrator::kSigma;
    const std::string name =
        sigmas == 0 ? "as published, total range" : "as published, 3-sigma range";
    add_variant(name, other, more, Logits::kIntegers);
    add_variant(name + ", real logits", other, more);
  }
}

}  // namespace gradsync::quantize
