// SPDX-License-Identifier: BSD-3-Clause
#include "stats/bandwidth.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"

using namespace gradsync;

namespace {
const double kNaN = std::nan("");
using List = std::vector<double>;
}  // namespace

TEST_CASE("alpha beta: times of the model give its numbers back") {
  // α = 20 µs, 10 GB/s: β = 0.1 ns/B. In no order.
  const List bytes = {1e6, 1024, 0, 64e6, 32768};
  List times;
  for (const double size : bytes)
    times.push_back(20e-6 + 1e-10 * size);
  const AlphaBeta fit = fit_alpha_beta(bytes, times);
  CHECK(fit.alpha_s == doctest::Approx(20e-6).epsilon(1e-12));
  CHECK(fit.beta_s_per_byte == doctest::Approx(1e-10).epsilon(1e-12));
  CHECK(fit.count == 5);
  CHECK(fit.residual_rms < 1e-12);
  CHECK(fit.time_s(2e6) == doctest::Approx(220e-6));
}

TEST_CASE("alpha beta: an overdetermined fit by hand") {
  // s = 0, 1, 2 and t = 1, 2, 4: u = 1, 1/2, 1/4; v = 0, 1/2, 1/2.
  // Σu² = 21/16, Σuv = 3/8, Σv² = 1/2, Σu = 7/4, Σv = 1; determinant 21/32 − 9/64 = 33/64.
  // α = (7/8 − 3/8)/(33/64) = 32/33, β = (21/16 − 21/32)/(33/64) = 42/33.
  const AlphaBeta fit = fit_alpha_beta(List{0, 1, 2}, List{1, 2, 4});
  CHECK(fit.alpha_s == doctest::Approx(32.0 / 33));
  CHECK(fit.beta_s_per_byte == doctest::Approx(42.0 / 33));
  // Residuals: (32/33 − 1)/1 = −1/33; (74/33 − 2)/2 = 4/33; (116/33 − 4)/4 = −4/33.
  CHECK(fit.residuals[0] == doctest::Approx(-1.0 / 33));
  CHECK(fit.residuals[1] == doctest::Approx(4.0 / 33));
  CHECK(fit.residuals[2] == doctest::Approx(-4.0 / 33));
  CHECK(fit.residual_rms == doctest::Approx(std::sqrt(11.0) / 33));
  CHECK(fit.residual_largest == doctest::Approx(4.0 / 33));
}

TEST_CASE("alpha beta: what was not measured is left out, and too little is NaN") {
  const AlphaBeta fit = fit_alpha_beta(List{10, kNaN, 20, 30, -1, 40}, List{2, 5, 3, kNaN, 4, 0});
  CHECK(fit.count == 2);
  CHECK(fit.alpha_s == doctest::Approx(1));
  CHECK(fit.beta_s_per_byte == doctest::Approx(0.1));
  CHECK(std::isnan(fit.residuals[1]));
  CHECK(std::isnan(fit.residuals[5]));
  for (const List& sizes : {List{}, List{8}, List{8, 8, 8}}) {
    const AlphaBeta none = fit_alpha_beta(sizes, List(sizes.size(), 1.0));
    CHECK(std::isnan(none.alpha_s));
    CHECK(std::isnan(none.beta_s_per_byte));
    CHECK(std::isnan(none.residual_rms));
    CHECK(none.count == sizes.size());
  }
  CHECK_THROWS_AS(fit_alpha_beta(List{1, 2}, List{1}), Error);
}

TEST_CASE("alpha beta: a negative latency is shown, not clipped") {
  CHECK(fit_alpha_beta(List{10, 20}, List{1, 3}).alpha_s == doctest::Approx(-1));
}

TEST_CASE("plateau and half-bandwidth size") {
  const List bytes = {1024, 2048, 4096, 8192, 16384};
  CHECK(plateau(bytes, List{1, 3, 8, 10, 9}) == 9);
  CHECK(plateau(List{1, 2}, List{4, 6}) == 5);
  CHECK(std::isnan(plateau(List{}, List{})));
  // Half of 9 is 4.5: from 3 to 8 between 2 and 4 KiB, a part of 0.3 on the log scale.
  CHECK(half_bandwidth_bytes(bytes, List{1, 3, 8, 10, 9}) ==
        doctest::Approx(2048 * std::pow(2, 0.3)));
  CHECK(std::isnan(half_bandwidth_bytes(bytes, List{6, 7, 8, 10, 9})));
  CHECK(half_bandwidth_bytes(bytes, List{kNaN, 3, 8, 8, 8}) ==
        doctest::Approx(2048 * std::pow(2, 0.2)));
  // From 0 bytes there is no log scale.
  CHECK(half_bandwidth_bytes(List{0, 70, 80, 90}, List{1, 8, 8, 8}) == doctest::Approx(30));
}
