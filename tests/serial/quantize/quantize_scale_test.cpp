#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "quantize/weights.h"
#include "tests/serial/expect_error.h"

using namespace gradsync;
using namespace gradsync::quantize;

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

TEST_CASE(
    "quantize: an accumulator goes back to 8 bits with halves to even, zero point and clamp") {
  Quantizer output;
  output.zero_point = -3;
  CHECK(requantize(10, 0.25f, 0, output) == -1);     // 2.5 becomes 2
  CHECK(requantize(14, 0.25f, 0, output) == 1);      // 3.5 becomes 4
  CHECK(requantize(-10, 0.25f, 0, output) == -5);    // −2.5 becomes −2
  CHECK(requantize(10, 0.25f, 0.75f, output) == 0);  // 3.25
  CHECK(requantize(1 << 30, 1, 0, output) == 127);
  CHECK(requantize(-(1 << 30), 1, 0, output) == -128);
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
