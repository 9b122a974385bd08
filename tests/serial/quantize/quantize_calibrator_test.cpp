#include <algorithm>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "quantize/calibrator.h"
#include "tests/serial/expect_error.h"

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
