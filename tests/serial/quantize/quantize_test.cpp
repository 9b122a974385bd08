// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "checkpoint/checkpoint_info.h"
#include "quantize/calibrator.h"
#include "quantize/float_model.h"
#include "tests/serial/expect_error.h"
#include "tests/serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::quantize;

namespace {

/// 0, 1, …, 9999 in thousandths.
std::vector<float> ramp() {
  std::vector<float> values;
  for (int i = 0; i < 10000; ++i)
    values.push_back(static_cast<float>(i) / 1000);
  return values;
}

/// Most numbers lie near 0, one in a thousand far away.
std::vector<float> with_outliers() {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int i = 0; i < 100000; ++i)
    values.push_back(i % 1000 == 0 ? 40.0f : std::abs(normal(engine)));
  return values;
}

}  // namespace

TEST_CASE("quantize: the three conventions, worked by hand for -1 to 3 in 8 bits") {
  const Range range{-1, 3};
  const Quantizer published = make_quantizer(range, Convention::kPublished, 8);
  CHECK(published.scale == doctest::Approx(4.0 / 127));
  CHECK(published.zero_point == 0);
  CHECK(published.low == -128);
  CHECK(published.high == 127);
  const Quantizer max_abs = make_quantizer(range, Convention::kMaxAbs, 8);
  CHECK(max_abs.scale == doctest::Approx(3.0 / 127));
  CHECK(max_abs.quantize(3) == 127);
  CHECK(max_abs.quantize(-1) == -42);
  CHECK(max_abs.quantize(4) == 127);
  CHECK(max_abs.quantize(-4) == -128);
  const Quantizer affine = make_quantizer(range, Convention::kAffine, 8);
  CHECK(affine.scale == doctest::Approx(4.0 / 255));
  CHECK(affine.zero_point == -64);
  CHECK(affine.quantize(-1) == -128);
  CHECK(affine.quantize(3) == 127);
  CHECK(affine.dequantize(affine.quantize(0)) == 0);
}

TEST_CASE("quantize: bits, halves to even, and ranges that are widened to hold zero") {
  const Quantizer two = make_quantizer({-1, 1}, Convention::kMaxAbs, 2);
  CHECK(two.low == -2);
  CHECK(two.high == 1);
  CHECK(two.scale == 1);
  CHECK(two.quantize(0.5) == 0);
  CHECK(two.quantize(1.5) == 1);
  CHECK(two.quantize(-0.5) == 0);
  CHECK(two.quantize(-1.5) == -2);
  const Quantizer positive = make_quantizer({2, 4}, Convention::kAffine, 8);
  CHECK(positive.scale == doctest::Approx(4.0 / 255));
  CHECK(positive.zero_point == -128);
  CHECK(positive.quantize(0) == -128);
}

TEST_CASE("quantize: what has no scale is refused") {
  CHECK(contains(error_text(ExitCode::kBadData,
                            [] {
                              make_quantizer({0, 0}, Convention::kMaxAbs, 8);
                            }),
                 "the range is zero"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(contains(error_text(ExitCode::kBadData,
                            [&] {
                              make_quantizer({0, nan}, Convention::kMaxAbs, 8);
                            }),
                 "not finite"));
  error_text(ExitCode::kInternal, [] { make_quantizer({0, 1}, Convention::kMaxAbs, 9); });
  error_text(ExitCode::kInternal, [] { make_quantizer({0, 1}, Convention::kMaxAbs, 1); });
}

TEST_CASE("quantize: the multiplier of an output is the ratio of its scales") {
  CHECK(output_multiplier(0.5f, 0.25f, 2.0f) == 0.0625f);
}

TEST_CASE("quantize: weights per tensor and per channel, with what is lost, by hand") {
  // Two channels; 127 and 1 are the largest.
  const std::vector<float> weights = {127, 1.4f, -3, 0.5f, 1, -0.5f};
  WeightScheme scheme;
  scheme.granularity = Granularity::kTensor;
  const QuantizedWeights whole = quantize_weights(weights, 2, scheme);
  CHECK(whole.quantizers.size() == 1);
  CHECK(whole.values == std::vector<std::int8_t>{127, 1, -3, 0, 1, 0});
  CHECK(whole.largest_error == doctest::Approx(0.5));
  // Σw² = 16141.46, Σe² = 0.4² + 0.5² + 0.5² = 0.66
  CHECK(whole.sqnr_db == doctest::Approx(10 * std::log10(16141.46 / 0.66)).epsilon(1e-5));
  scheme.granularity = Granularity::kChannel;
  const QuantizedWeights each = quantize_weights(weights, 2, scheme);
  CHECK(each.quantizers.size() == 2);
  CHECK(each.values == std::vector<std::int8_t>{127, 1, -3, 64, 127, -64});
  CHECK(each.sqnr_db > whole.sqnr_db);
  CHECK(each.clipped == 0);
}

TEST_CASE("quantize: a range of k sigma clips, and says how much") {
  // Mean 0, deviation 1 but for one of 64: ±1, and one pair of ±8.
  std::vector<float> weights;
  for (int i = 0; i < 63; ++i) {
    weights.push_back(1);
    weights.push_back(-1);
  }
  weights.push_back(8);
  weights.push_back(-8);
  WeightScheme scheme;
  scheme.granularity = Granularity::kTensor;
  scheme.sigmas = 3;
  const double deviation = std::sqrt((126 + 128) / 128.0);
  const QuantizedWeights clipped = quantize_weights(weights, 1, scheme);
  CHECK(clipped.quantizers[0].scale == doctest::Approx(3 * deviation / 127));
  CHECK(clipped.clipped == doctest::Approx(2.0 / 128));
  CHECK(clipped.values.back() == -128);
  CHECK(clipped.largest_error == doctest::Approx(8 - 3 * deviation));
}

TEST_CASE("quantize: channels without weights get a scale, layers without weights do not") {
  const QuantizedWeights one = quantize_weights(std::vector<float>{0, 0, 1, -1}, 2, {});
  CHECK(one.values == std::vector<std::int8_t>{0, 0, 127, -127});
  CHECK(one.quantizers[0].scale == doctest::Approx(0x1p-13 / 127));
  CHECK(contains(error_text(ExitCode::kBadData,
                            [] {
                              quantize_weights(std::vector<float>{0, 0}, 1, {});
                            }),
                 "all its weights are 0"));
  CHECK(contains(error_text(ExitCode::kBadData,
                            [] {
                              quantize_weights(std::vector<float>{1, NAN}, 1, {});
                            }),
                 "weight 1 is nan"));
}

TEST_CASE("quantize: mean, deviation, extremes and bins of a few numbers, by hand") {
  const Distribution of = distribution_of(std::vector<float>{-1, 0, 0, 3});
  CHECK(of.count == 4);
  CHECK(of.total.low == -1);
  CHECK(of.total.high == 3);
  CHECK(of.mean == doctest::Approx(0.5));
  CHECK(of.deviation == doctest::Approx(1.5));
  CHECK(of.sigma(3).low == doctest::Approx(-4));
  CHECK(of.sigma(3).high == doctest::Approx(5));
  CHECK(of.picture.counts.front() == 1);
  CHECK(of.picture.counts[15] == 2);  // 0 is a quarter of the way
  CHECK(of.picture.counts.back() == 1);
  CHECK(of.picture.total() == 4);
  CHECK(of.fine.total() == 4);
}

TEST_CASE("quantize: shares in any order and number add up to the same bits") {
  const std::vector<float> values = with_outliers();
  const auto tallied = [&](std::size_t shares) {
    std::vector<DistributionTally> tallies(shares);
    const std::size_t pieces = 100, length = values.size() / pieces;
    const auto piece = [&](std::size_t i) { return std::span(values).subspan(i * length, length); };
    Range all{1e9, -1e9};
    for (std::size_t i = pieces; i-- > 0;)
      tallies[i % shares].add_extremes(piece(i));
    for (const auto& tally : tallies)
      all = {std::min(all.low, tally.extremes().low), std::max(all.high, tally.extremes().high)};
    for (auto& tally : tallies)
      tally.set_extremes(all);
    for (std::size_t i = 0; i < pieces; ++i)
      tallies[(i * 7) % shares].add_counts(piece(i));
    const auto sums = tallies[0].integers();
    for (std::size_t share = 1; share < shares; ++share)
      for (std::size_t i = 0; i < sums.size(); ++i)
        *sums[i] += *tallies[share].integers()[i];
    return tallies[0].result();
  };
  const Distribution one = tallied(1), three = tallied(3), seven = tallied(7);
  CHECK(one.mean == three.mean);
  CHECK(one.mean == seven.mean);
  CHECK(one.deviation == three.deviation);
  CHECK(one.deviation == seven.deviation);
  CHECK(one.fine.counts == seven.fine.counts);
  CHECK(one.picture.counts == three.picture.counts);
  double sum = 0;
  for (const float value : values)
    sum += static_cast<double>(value);
  CHECK(one.mean == doctest::Approx(sum / 1e5).epsilon(1e-9));
}

TEST_CASE("quantize: min-max, sigma and percentile of a ramp") {
  const Distribution of = distribution_of(ramp());
  CHECK(calibrated_range(of, {Calibrator::kMinMax}).high == doctest::Approx(9.999));
  const Range sigma = calibrated_range(of, {Calibrator::kSigma, 1});
  CHECK(sigma.low == doctest::Approx(4.9995 - 2.88675).epsilon(1e-4));
  CHECK(sigma.high == doctest::Approx(4.9995 + 2.88675).epsilon(1e-4));
  const Range wide = calibrated_range(of, {Calibrator::kSigma, 3});
  CHECK(wide.low == 0);  // within the total range
  CHECK(wide.high == doctest::Approx(9.999));
  const Range percentile = calibrated_range(of, {Calibrator::kPercentile, 3, 90});
  CHECK(percentile.low == doctest::Approx(0.5).epsilon(0.02));
  CHECK(percentile.high == doctest::Approx(9.5).epsilon(0.02));
  CHECK(of.fraction_outside(percentile) == doctest::Approx(0.1).epsilon(0.02));
}

TEST_CASE("quantize: entropy leaves far numbers out, and keeps all where there are none") {
  const Distribution outliers = distribution_of(with_outliers());
  const Range cut = calibrated_range(outliers, {Calibrator::kEntropy});
  CHECK(cut.low == outliers.total.low);
  CHECK(cut.high > 2.5);
  CHECK(cut.high < 20);
  // 128 numbers that 128 steps hold exactly: nothing is lost at the full range only.
  std::vector<float> steps;
  for (int i = 0; i < 128; ++i)
    for (int times = 0; times <= i % 7; ++times)
      steps.push_back(static_cast<float>(i) + 0.5f);
  steps.push_back(128);
  const Distribution exact = distribution_of(steps);
  CHECK(calibrated_range(exact, {Calibrator::kEntropy}).high == doctest::Approx(128));
}

TEST_CASE("quantize: numbers that are all the same, none, or not finite are refused") {
  const Distribution constant = distribution_of(std::vector<float>{2, 2, 2});
  CHECK(contains(error_text(ExitCode::kBadData, [&] { calibrated_range(constant, {}); }),
                 "all 3 values are 2"));
  CHECK(contains(error_text(ExitCode::kBadData, [] { distribution_of({}); }), "no values"));
  error_text(ExitCode::kNumbers, [] { distribution_of(std::vector<float>{1, INFINITY}); });
}

TEST_CASE("quantize: plans have the shapes and sizes of the networks") {
  const auto weights = [](const quantize::Plan& plan) {
    std::size_t sum = 0;
    for (const Node& node : plan.nodes)
      if (node.kind == NodeKind::kConvolution) sum += node.weights();
    return sum;
  };
  CHECK(weights(make_plan("lenet")) == 61770);
  CHECK(weights(make_plan("lenet-no-bias")) == 61770);
  CHECK(make_plan("lenet").nodes.back().biased);
  CHECK_FALSE(make_plan("lenet-no-bias").nodes.back().biased);
  CHECK(make_plan("lenet").nodes[1].out_side == 14);
  CHECK(make_plan("lenet").nodes[4].kernel == 5);
  CHECK(make_plan("vgg11").nodes.back().in_channels == 512);
  CHECK(weights(make_plan("vgg11")) == 9222848);
  const quantize::Plan resnet = make_plan("resnet18");
  CHECK(weights(resnet) == 11164352);
  CHECK(resnet.nodes.size() == 1 + 8 * 2 + 3 + 2);
  CHECK(resnet.nodes.back().in_side == 1);
  CHECK(resnet.nodes[resnet.nodes.size() - 2].kernel == 4);
  CHECK(contains(error_text(ExitCode::kUsage, [] { make_plan("resnet18-imagenet"); }), "lenet"));
}

TEST_CASE("quantize: batch norm folds into weights and bias, by hand") {
  FloatLayer layer{{2, 4, 6, 8}, {1, 1}};
  BatchNormValues norm{{3, 1}, {10, 20}, {0, 5}, {9, 4}, 0};
  fold(layer, norm);
  CHECK(layer.weights == std::vector<float>{2, 4, 3, 4});
  CHECK(layer.bias == std::vector<float>{11, 18});
  FloatLayer bare{{2, 4}, {}};
  fold(bare, {{2}, {1}, {3}, {4}, 0});
  CHECK(bare.weights == std::vector<float>{2, 4});
  CHECK(bare.bias == std::vector<float>{-2});
}

TEST_CASE(
    "quantize: the mean over the ranks of a checkpoint, and numbers of ranks that cannot be") {
  const TestFolder folder;
  const auto mean_of = [&](std::int64_t ranks) {
    const auto path = folder / fmt::format("{}.safetensors", ranks);
    CheckpointInfo info;
    info.ranks = ranks;
    info.options = {{"sync", "local-sgd"}};
    const std::string name = "parameters/w";
    CheckpointWriter writer(path, {{name, "F32", {1}}, {"rank1/" + name, "F32", {1}}},
                            to_metadata(info));
    const std::vector<float> values = {1, 3};
    writer.write(std::as_bytes(std::span(values)));
    writer.finish();
    const CheckpointFile file(path);
    const auto bytes = trained_bytes(file, *file.find(name));
    float mean = 0;
    std::memcpy(&mean, bytes.data(), sizeof mean);
    return mean;
  };
  CHECK(mean_of(2) == 2);
  for (const std::int64_t ranks : {std::int64_t{0}, std::int64_t{50'000'000}})
    CHECK(contains(error_text(ExitCode::kBadData, [&] { mean_of(ranks); }),
                   fmt::format("states {} as its number of ranks", ranks)));
}
