// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "model/image_batch.h"
#include "quantize/float_network.h"
#include "quantize/study.h"

namespace gradsync::quantize {

static_assert(kHistogramBins == kPictureBins);

namespace {

// --- rows of tensors -----------------------------------------------------------------------------

constexpr double kSigmas = 3;
constexpr std::int32_t kLowestInteger = -128;
/// Images whose integers are compared with their real numbers.
constexpr std::int64_t kCompared = 100;

/// A tensor before it is quantized.
QuantizedTensorRow tensor_row(const std::string& layer, const std::string& role,
                              const Distribution& values) {
  QuantizedTensorRow row;
  row.layer = layer;
  row.role = role;
  row.count = values.count;
  row.minimum = values.total.low;
  row.maximum = values.total.high;
  row.mean = values.mean;
  row.deviation = values.deviation;
  row.sigma_low = values.sigma(kSigmas).low;
  row.sigma_high = values.sigma(kSigmas).high;
  row.histogram = values.picture.counts;
  row.integers.assign(kHistogramLevels, 0);
  return row;
}

QuantizedTensorRow weight_row(const Node& node, const FloatLayer& layer,
                              const QuantizedWeights& weights) {
  QuantizedTensorRow row = tensor_row(node.name, "weight", distribution_of(layer.weights));
  const auto [least, largest] =
      std::minmax_element(weights.quantizers.begin(), weights.quantizers.end(),
                          [](const Quantizer& a, const Quantizer& b) { return a.scale < b.scale; });
  row.scales = static_cast<std::int64_t>(weights.quantizers.size());
  row.scale_least = static_cast<double>(least->scale);
  row.scale_largest = static_cast<double>(largest->scale);
  const bool same = std::all_of(
      weights.quantizers.begin(), weights.quantizers.end(),
      [&](const Quantizer& by) { return by.zero_point == weights.quantizers.front().zero_point; });
  if (same) row.zero_point = weights.quantizers.front().zero_point;
  row.sqnr_db = weights.sqnr_db;
  row.largest_error = weights.largest_error;
  row.clipped = weights.clipped;
  for (const std::int8_t value : weights.values)
    ++row.integers[static_cast<std::size_t>(value - kLowestInteger)];
  return row;
}

/// A bias of n units of input scale × weight scale.
QuantizedTensorRow bias_row(const Int8Model& quantized, std::size_t number,
                            const FloatLayer& layer) {
  const Node& node = quantized.plan.nodes[number];
  const Int8Layer& into = quantized.layers[number];
  const double input_scale = static_cast<double>(quantized.of_value(node.input).scale);
  QuantizedTensorRow row = tensor_row(node.name, "bias", distribution_of(layer.bias));
  std::vector<float> restored;
  row.scales = static_cast<std::int64_t>(into.weights.quantizers.size());
  row.largest_error = 0;
  for (std::size_t c = 0; c < into.bias.size(); ++c) {
    const double scale = input_scale * static_cast<double>(into.weights.of_channel(c).scale);
    row.scale_least = std::fmin(row.scale_least, scale);
    row.scale_largest = std::fmax(row.scale_largest, scale);
    restored.push_back(static_cast<float>(scale * into.bias[c]));
    row.largest_error = std::max(
        row.largest_error, std::abs(static_cast<double>(layer.bias[c]) - scale * into.bias[c]));
  }
  row.zero_point = 0;
  row.clipped = 0;
  row.sqnr_db = sqnr_db(layer.bias, restored);
  return row;
}

/// Weights of each node that has some, with what they became; then its bias, where it has one.
std::vector<QuantizedTensorRow> parameter_rows(const FloatModel& model,
                                               const Int8Model& quantized) {
  std::vector<QuantizedTensorRow> rows;
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
    if (!model.plan.weighted(i)) continue;
    rows.push_back(weight_row(model.plan.nodes[i], model.layers[i], quantized.layers[i].weights));
    if (!model.layers[i].bias.empty()) rows.push_back(bias_row(quantized, i, model.layers[i]));
  }
  return rows;
}

// --- activations ---------------------------------------------------------------------------------

/// "input" for value 0, else the name of the node.
std::string value_name(const Plan& plan, std::size_t value) {
  return value == 0 ? "input" : plan.nodes[value - 1].name;
}

bool is_maximum(const Plan& plan, std::size_t value) {
  return value > 0 && plan.nodes[value - 1].kind == NodeKind::kMaxPool;
}

/// The numbers of one image of a value, in their order in memory.
std::span<const float> numbers_of(const torch::Tensor& values, std::int64_t image) {
  const auto count = static_cast<std::size_t>(values.numel() / values.size(0));
  return {values.data_ptr<float>() + static_cast<std::size_t>(image) * count, count};
}

using Tallies = std::vector<DistributionTally>;  ///< one a value of the plan

/// What one pass does with the numbers of an image.
using Look = void (DistributionTally::*)(std::span<const float>);

void look_at(const Plan& plan, std::size_t value, const torch::Tensor& values, Look look,
             Tallies& tallies) {
  const torch::Tensor dense = values.contiguous(at::MemoryFormat::ChannelsLast);
  try {
    for (std::int64_t image = 0; image < dense.size(0); ++image)
      (tallies[value].*look)(numbers_of(dense, image));
  } catch (const Error& error) {
    throw Error(
        error.code(),
        fmt::format("layer {}: {} among its activations", value_name(plan, value), error.what()),
        "the network does not work: look at its test accuracy");
  }
}

/// One pass over the images: `tallies` of each worker see what its batches give.
void pass(const StudyRanks& ranks, const FloatModel& model, const ImageRange& images, Look look,
          std::vector<Tallies>& tallies) {
  const FloatNetwork network(model);
  for_each_batch(ranks, images, [&](std::size_t worker, std::int64_t, const torch::Tensor& batch) {
    network.forward(batch, [&](std::size_t value, const torch::Tensor& values) {
      look_at(model.plan, value, values, look, tallies[worker]);
    });
  });
}

/// Extremes over all workers and ranks, one a value.
std::vector<Range> shared_extremes(const StudyRanks& ranks, const std::vector<Tallies>& tallies) {
  std::vector<Range> extremes(tallies.front().size(), Range{1, -1});
  for (const Tallies& of_worker : tallies)
    for (std::size_t value = 0; value < extremes.size(); ++value)
      widen(extremes[value], of_worker[value].extremes());
  widen_over_ranks(ranks.exchange, extremes);
  return extremes;
}

/// Adds up what workers and ranks counted of one value.
Distribution gathered(const StudyRanks& ranks, std::vector<Tallies>& tallies, std::size_t value) {
  const auto sums = tallies.front()[value].integers();
  for (std::size_t worker = 1; worker < tallies.size(); ++worker) {
    const auto more = tallies[worker][value].integers();
    for (std::size_t i = 0; i < sums.size(); ++i)
      *sums[i] += *more[i];
  }
  add_over_ranks(ranks.exchange, sums);
  return tallies.front()[value].result();
}

/// Gathers integers of a value and how far they are from the real numbers.
struct Comparison {
  std::array<std::int64_t, kHistogramLevels> counts{};  ///< of each integer −128 … 127
  double signal = 0, noise = 0;

  void add(const torch::Tensor& exact, const torch::Tensor& integers, const Quantizer& by) {
    const torch::Tensor x = exact.contiguous(), q = integers.contiguous();
    const float *real = x.data_ptr<float>(), *whole = q.data_ptr<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const auto stored = static_cast<std::int32_t>(whole[i]) + by.zero_point;
      ++counts[static_cast<std::size_t>(std::clamp(stored - kLowestInteger, 0, 255))];
      const double difference = static_cast<double>(real[i]) -
                                static_cast<double>(by.scale) * static_cast<double>(whole[i]);
      signal += static_cast<double>(real[i]) * static_cast<double>(real[i]);
      noise += difference * difference;
    }
  }
  double sqnr_db() const { return 10 * std::log10(signal / noise); }
};

/// One comparison a value, over `images`.
std::vector<Comparison> compare(const FloatModel& model, const Int8Model& quantized,
                                std::vector<float> pixels, std::int64_t images) {
  std::vector<torch::Tensor> exact, integers;
  const torch::Tensor batch = image_batch(pixels.data(), images, Layout::kNhwc);
  FloatNetwork(model).forward(
      batch, [&](std::size_t, const torch::Tensor& values) { exact.push_back(values.clone()); });
  EmulatedNetwork(quantized).forward(
      batch, [&](std::size_t, const torch::Tensor& values) { integers.push_back(values.clone()); });
  std::vector<Comparison> comparisons(exact.size());
  for (std::size_t value = 0; value + 1 < exact.size(); ++value)
    comparisons[value].add(exact[value], integers[value], quantized.of_value(value));
  return comparisons;
}

Quantizer quantizer_of(const Plan& plan, const std::vector<Distribution>& values, std::size_t value,
                       const ActivationScheme& scheme) {
  try {
    return make_quantizer(calibrated_range(values[value], scheme.calibrator), scheme.convention,
                          scheme.bits);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw Error(ExitCode::kBadData,
                fmt::format("layer {}: its activations have no range: {}", value_name(plan, value),
                            error.what()),
                "the layer is dead, or the calibration images are all alike: look at the "
                "network's test accuracy, or give other --calibration-images");
  }
}

/// An activation after it is quantized: `clipped` is the part of the calibration's numbers outside
/// the range.
QuantizedTensorRow activation_row(const std::string& layer, const Distribution& values,
                                  const Quantizer& by, const Comparison& comparison) {
  QuantizedTensorRow row = tensor_row(layer, "activation", values);
  row.scales = 1;
  row.scale_least = row.scale_largest = static_cast<double>(by.scale);
  row.zero_point = by.zero_point;
  row.sqnr_db = comparison.sqnr_db();
  row.clipped = values.fraction_outside(by.unclamped());
  row.integers.assign(comparison.counts.begin(), comparison.counts.end());
  return row;
}

/// The distribution of the calibration images in the published study's form.
Distribution pixels_of(const ImageRange& images) {
  DistributionTally tally;
  for (std::int64_t image = 0; image < images.count(); ++image)
    tally.add_extremes(images.unit_pixels(image));
  tally.set_extremes(tally.extremes());
  for (std::int64_t image = 0; image < images.count(); ++image)
    tally.add_counts(images.unit_pixels(image));
  return tally.result();
}

// --- accuracy ------------------------------------------------------------------------------------

const std::string kUntouched = "fp32";

/// The class with the largest logit, or with the largest integer that a logit becomes; of equal
/// ones the first.
std::int64_t predicted(std::span<const float> logits, const std::optional<Quantizer>& rounded) {
  std::vector<double> levels(logits.begin(), logits.end());
  if (rounded)
    for (double& level : levels)
      level = rounded->quantize(level);
  return std::max_element(levels.begin(), levels.end()) - levels.begin();
}

/// Adds to `row` how many images a network classifies right.
template <typename Network>
void judge(const StudyRanks& ranks, const ImageRange& images, const Network& network,
           QuantizedStepRow& row, const std::optional<Quantizer>& rounded = {}) {
  std::vector<std::int64_t> correct(ranks.threads);
  for_each_batch(ranks, images,
                 [&](std::size_t worker, std::int64_t first, const torch::Tensor& batch) {
                   const torch::Tensor logits = network.forward(batch).contiguous();
                   const std::size_t classes = static_cast<std::size_t>(logits.size(1));
                   for (std::int64_t i = 0; i < logits.size(0); ++i) {
                     const std::span one(
                         logits.data_ptr<float>() + static_cast<std::size_t>(i) * classes, classes);
                     correct[worker] += predicted(one, rounded) == images.label(first + i) ? 1 : 0;
                   }
                 });
  row.images = images.count();
  row.correct = std::accumulate(correct.begin(), correct.end(), std::int64_t{0});
  const std::vector<std::int64_t*> sums = {&row.correct};
  add_over_ranks(ranks.exchange, sums);
}

/// The network with the numbers that its integer weights stand for.
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
  observe_activations();
  ranks_.exchange.session().together([&] {
    quantized_ = quantize_model(model_, options_.weights, quantize_values(options_.activations));
  });
  results_.tensors = parameter_rows(model_, quantized_);
  add_activation_rows();
}

// Two passes over the images, which the ranks share out.
void Study::observe_activations() {
  values_.resize(model_.plan.nodes.size() + 1);
  std::vector<Tallies> tallies(ranks_.threads, Tallies(values_.size()));
  pass(ranks_, model_, calibration_, &DistributionTally::add_extremes, tallies);
  const std::vector<Range> extremes = shared_extremes(ranks_, tallies);
  for (Tallies& of_worker : tallies)
    for (std::size_t value = 0; value < values_.size(); ++value)
      of_worker[value].set_extremes(extremes[value]);
  pass(ranks_, model_, calibration_, &DistributionTally::add_counts, tallies);
  for (std::size_t value = 0; value < values_.size(); ++value)
    values_[value] = gathered(ranks_, tallies, value);
}

// All values but maxima, whose integers are those of their input, and the logits.
ValueQuantizers Study::quantize_values(const ActivationScheme& scheme) const {
  ValueQuantizers quantizers(values_.size());
  for (std::size_t value = 0; value + 1 < values_.size(); ++value)
    if (!is_maximum(model_.plan, value))
      quantizers[value] = quantizer_of(model_.plan, values_, value, scheme);
  return quantizers;
}

void Study::add_activation_rows() {
  const Plan& plan = model_.plan;
  const std::int64_t count = std::min(kCompared, calibration_.count());
  const auto comparisons = compare(model_, quantized_, calibration_.load(0, count), count);
  std::vector<QuantizedTensorRow>& rows = results_.tensors;
  for (std::size_t value = 0; value + 1 < values_.size(); ++value)
    if (is_maximum(plan, value))
      rows.push_back(
          tensor_row(value_name(plan, plan.nodes[value - 1].input), "pooled", values_[value]));
    else
      rows.push_back(activation_row(value_name(plan, value), values_[value],
                                    quantized_.of_value(value), comparisons[value]));
  rows.push_back(tensor_row("input", "pixels", pixels_of(calibration_)));
  // The logits are not rounded.
  rows.push_back(tensor_row(plan.nodes.back().name, "activation", values_.back()));
}

void Study::judge_steps() {
  const std::string weights = bits_text(options_.weights.text(), options_.weights.bits);
  const std::string activations = bits_text(options_.activations.text(), options_.activations.bits);
  const auto add = [&](const QuantizedStepRow& step, const auto& network) {
    judge(ranks_, test_, network, results_.steps.emplace_back(step));
  };
  add({.kind = "step",
       .name = "fp32",
       .weights = kUntouched,
       .activations = kUntouched,
       .bias = kUntouched,
       .model_bytes = float_bytes_},
      FloatNetwork(model_));
  add({.kind = "step",
       .name = "weights",
       .weights = weights,
       .activations = kUntouched,
       .bias = kUntouched},
      FloatNetwork(with_quantized_weights(model_, options_.weights)));
  add({.kind = "step",
       .name = "weights and activations",
       .weights = weights,
       .activations = activations,
       .bias = kUntouched},
      EmulatedNetwork(quantized_, &model_));
  add({.kind = "step",
       .name = "all, with bias",
       .weights = weights,
       .activations = activations,
       .bias = "int32",
       .model_bytes = int8_bytes(quantized_)},
      EmulatedNetwork(quantized_));
}

void Study::add_variant(const std::string& name, const WeightScheme& weights,
                        const ActivationScheme& activations, Logits logits) {
  std::optional<EmulatedNetwork> network;
  std::optional<Quantizer> rounded;
  std::string why = "another rank has no integers for it";
  try {
    if (logits == Logits::kIntegers)
      rounded = quantizer_of(model_.plan, values_, values_.size() - 1, activations);
    network.emplace(quantize_model(model_, weights, quantize_values(activations)));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    why = error.what();
  }
  // Where the ranks' libraries round differently, one of them alone may have failed.
  if (ranks_.exchange.session().max(network ? 0 : 1) > 0) {
    if (ranks_.exchange.session().root())
      print_warning("gradsync-quantize", fmt::format("variant '{}' is left out: {}", name, why));
    return;
  }
  QuantizedStepRow row{.kind = "ablation",
                       .name = name,
                       .weights = bits_text(weights.text(), weights.bits),
                       .activations = bits_text(activations.text(), activations.bits),
                       .bias = "int32"};
  judge(ranks_, test_, *network, row, rounded);
  results_.steps.push_back(row);
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
