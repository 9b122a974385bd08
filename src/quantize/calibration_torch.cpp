#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/error.h"
#include "model/image_batch.h"
#include "quantize/calibration.h"
#include "quantize/ranks.h"
#include "quantize/workers.h"

namespace gradsync::quantize {

namespace {

/// Images whose integers are held against their real numbers.
constexpr std::int64_t kCompared = 100;

bool is_maximum(const Plan& plan, std::size_t value) {
  return value > 0 && plan.nodes[value - 1].kind == NodeKind::kMaxPool;
}

/// The numbers of one image of a value, in their order in memory.
std::span<const float> numbers_of(const torch::Tensor& values, std::int64_t image) {
  const auto count = static_cast<std::size_t>(values.numel() / values.size(0));
  return {values.data_ptr<float>() + static_cast<std::size_t>(image) * count, count};
}

using Tallies = std::vector<DistributionTally>;  ///< one a value

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
        ExitCode::kBadData,
        fmt::format("layer {}: {} among its activations", value_name(plan, value), error.what()),
        "the network does not work: look at its test accuracy");
  }
}

/// One pass over this rank's images: `tallies` of each worker see what its batches give.
void pass(const StudyRanks& ranks, const FloatModel& model, const ImageRange& images, Look look,
          std::vector<Tallies>& tallies) {
  const FloatNetwork network(model);
  const auto mine = batches_of_rank(images.count(), kImagesAtOnce, ranks.exchange.session().rank(),
                                    ranks.exchange.session().size());
  const auto work = [&](std::size_t worker, std::size_t item) {
    std::vector<float> pixels = images.load(mine[item].first, mine[item].count);
    network.forward(image_batch(pixels.data(), mine[item].count, Layout::kNhwc),
                    [&](std::size_t value, const torch::Tensor& values) {
                      look_at(model.plan, value, values, look, tallies[worker]);
                    });
  };
  ranks.exchange.session().together(
      [&] { in_parallel(ranks.threads, mine.size(), work, [] { at::set_num_threads(1); }); });
}

Range extremes_of(const std::vector<Tallies>& tallies, std::size_t value) {
  Range all{1, -1};
  for (const Tallies& of : tallies) {
    const Range one = of[value].extremes();
    if (one.low > one.high) continue;
    all =
        all.low > all.high ? one : Range{std::min(all.low, one.low), std::max(all.high, one.high)};
  }
  return all;
}

/// All ranks' extremes, one a value.
std::vector<Range> shared_extremes(const StudyRanks& ranks, const std::vector<Tallies>& tallies) {
  std::vector<Range> extremes;
  for (std::size_t value = 0; value < tallies.front().size(); ++value)
    extremes.push_back(extremes_of(tallies, value));
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
  IntegerCounts counts{};
  double signal = 0, noise = 0;

  void add(const torch::Tensor& exact, const torch::Tensor& integers, const Quantizer& by) {
    const torch::Tensor x = exact.contiguous(), q = integers.contiguous();
    const float *real = x.data_ptr<float>(), *whole = q.data_ptr<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const auto stored = static_cast<std::int32_t>(whole[i]) + by.zero_point;
      ++counts[static_cast<std::size_t>(std::clamp(stored + 128, 0, 255))];
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

Quantizer quantizer_of(const Plan& plan, const ValueDistributions& values, std::size_t value,
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

/// How the calibration images lie in the published study's form.
Distribution pixels_of(const ImageRange& images) {
  DistributionTally tally;
  for (std::int64_t image = 0; image < images.count(); ++image)
    tally.add_extremes(images.unit_pixels(image));
  tally.set_extremes(tally.extremes());
  for (std::int64_t image = 0; image < images.count(); ++image)
    tally.add_counts(images.unit_pixels(image));
  return tally.result();
}

}  // namespace

std::string value_name(const Plan& plan, std::size_t value) {
  return value == 0 ? "input" : plan.nodes[value - 1].name;
}

ValueDistributions observe_activations(const StudyRanks& ranks, const FloatModel& model,
                                       const ImageRange& images) {
  const std::size_t values = model.plan.nodes.size() + 1;
  std::vector<Tallies> tallies(ranks.threads, Tallies(values));
  pass(ranks, model, images, &DistributionTally::add_extremes, tallies);
  const std::vector<Range> extremes = shared_extremes(ranks, tallies);
  for (Tallies& of_worker : tallies)
    for (std::size_t value = 0; value < values; ++value)
      of_worker[value].set_extremes(extremes[value]);
  pass(ranks, model, images, &DistributionTally::add_counts, tallies);
  ValueDistributions result(values);
  for (std::size_t value = 0; value < values; ++value)
    result[value] = gathered(ranks, tallies, value);
  return result;
}

ValueQuantizers quantize_values(const Plan& plan, const ValueDistributions& values,
                                const ActivationScheme& scheme) {
  ValueQuantizers quantizers(values.size());
  for (std::size_t value = 0; value + 1 < values.size(); ++value)
    if (!is_maximum(plan, value)) quantizers[value] = quantizer_of(plan, values, value, scheme);
  return quantizers;
}

Quantizer quantize_logits(const Plan& plan, const ValueDistributions& values,
                          const ActivationScheme& scheme) {
  return quantizer_of(plan, values, values.size() - 1, scheme);
}

std::vector<QuantizedTensorRow> activation_rows(const FloatModel& model, const Int8Model& quantized,
                                                const ValueDistributions& values,
                                                const ImageRange& images) {
  const std::int64_t count = std::min(kCompared, images.count());
  const auto comparisons = compare(model, quantized, images.load(0, count), count);
  std::vector<QuantizedTensorRow> rows;
  for (std::size_t value = 0; value + 1 < values.size(); ++value)
    if (is_maximum(model.plan, value))
      rows.push_back(tensor_row(value_name(model.plan, model.plan.nodes[value - 1].input), "pooled",
                                values[value]));
    else
      rows.push_back(activation_row(value_name(model.plan, value), values[value],
                                    quantized.of_value(value), comparisons[value].sqnr_db(),
                                    comparisons[value].counts));
  rows.push_back(tensor_row("input", "pixels", pixels_of(images)));
  // The logits are not rounded.
  rows.push_back(tensor_row(model.plan.nodes.back().name, "activation", values.back()));
  return rows;
}

}  // namespace gradsync::quantize
