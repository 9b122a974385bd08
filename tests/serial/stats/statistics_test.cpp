#include "stats/statistics.h"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"
#include "serial/expect_error.h"

using namespace gradsync;

TEST_CASE("statistics: of nothing, everything is NaN and the count is 0") {
  const auto s = statistics(Values{});
  CHECK(s.count == 0);
  CHECK(s.left_out == 0);
  for (double value :
       {s.mean, s.deviation, s.variation, s.minimum, s.median, s.p95, s.p99, s.maximum})
    CHECK(std::isnan(value));
  CHECK(std::isnan(gradsync::mean(Values{})));
  CHECK(std::isnan(gradsync::median(Values{})));
}

TEST_CASE("statistics: of one value there is no deviation") {
  const auto s = statistics(Values{3});
  CHECK(s.count == 1);
  CHECK(s.mean == 3);
  CHECK(std::isnan(s.deviation));
  CHECK(std::isnan(s.variation));
  CHECK(s.minimum == 3);
  CHECK(s.median == 3);
  CHECK(s.p95 == 3);
  CHECK(s.p99 == 3);
  CHECK(s.maximum == 3);
}

TEST_CASE("statistics: of two values") {
  const auto s = statistics(Values{5, 1});
  CHECK(s.mean == 3);
  CHECK(s.deviation == doctest::Approx(std::sqrt(8.0)));  // (2² + 2²) / 1
  CHECK(s.median == 3);
  CHECK(s.p95 == doctest::Approx(4.8));
  CHECK(s.p99 == doctest::Approx(4.96));
}

TEST_CASE("statistics: even and odd counts, unsorted") {
  const auto odd = statistics(Values{9, 1, 4, 16, 25});
  CHECK(odd.mean == 11);
  CHECK(odd.median == 9);
  CHECK(odd.deviation == doctest::Approx(std::sqrt(93.5)));  // 4+100+49+25+196 = 374 over 4
  CHECK(odd.p95 == doctest::Approx(23.2));                   // h = 3.8: 16 + 0.8·9
  const auto even = statistics(Values{8, 2, 6, 4});
  CHECK(even.median == 5);
  CHECK(even.deviation == doctest::Approx(std::sqrt(20.0 / 3)));
  CHECK(even.minimum == 2);
  CHECK(even.maximum == 8);
}

TEST_CASE("statistics: coefficient of variation") {
  CHECK(statistics(Values{5, 1}).variation == doctest::Approx(std::sqrt(8.0) / 3));
  CHECK(statistics(Values{2, 2, 2}).variation == 0);
  CHECK(std::isnan(statistics(Values{0, 0}).variation));
  CHECK(std::isnan(statistics(Values{-2, -4}).variation));
}

TEST_CASE("statistics: the order of the input is left as it was") {
  const Values values{3, 1, 2};
  statistics(values);
  CHECK(values == Values{3, 1, 2});
}

TEST_CASE("statistics: equal values have deviation 0 exactly") {
  const auto s = statistics(Values(1000, 0.5));
  CHECK(s.deviation == 0);
  CHECK(s.mean == 0.5);
  CHECK(s.median == 0.5);
  CHECK(s.p99 == 0.5);
}

TEST_CASE("statistics: a large offset does not eat the deviation") {
  CHECK(statistics(Values{1e9 + 1, 1e9 + 2, 1e9 + 3}).deviation == doctest::Approx(1.0));
}

TEST_CASE("statistics: NaN and infinities are left out and counted") {
  const auto s = statistics(Values{kNan, 1, kInfinity, 3, -kInfinity});
  CHECK(s.count == 2);
  CHECK(s.left_out == 3);
  CHECK(s.mean == 2);
  CHECK(s.maximum == 3);
  CHECK(statistics(Values{kNan, kNan}).count == 0);
  CHECK(std::isnan(statistics(Values{kNan}).mean));
  CHECK(gradsync::mean(Values{kNan, 4, 6}) == 5);
  CHECK(gradsync::sum(Values{kNan, 4, 6}) == 10);
  CHECK(std::isnan(gradsync::sum(Values{kNan})));
}

TEST_CASE("quantile: type 7, as R and NumPy interpolate") {
  Values hundred;
  for (int i = 100; i >= 1; --i)
    hundred.push_back(i);
  CHECK(quantile(hundred, 0) == 1);
  CHECK(quantile(hundred, 0.25) == doctest::Approx(25.75));
  CHECK(quantile(hundred, 0.5) == doctest::Approx(50.5));
  CHECK(quantile(hundred, 0.95) == doctest::Approx(95.05));
  CHECK(quantile(hundred, 0.99) == doctest::Approx(99.01));
  CHECK(quantile(hundred, 1) == 100);
}

TEST_CASE("quantile: p outside 0..1 is an error") {
  CHECK_THROWS_AS(quantile(Values{1}, -0.1), gradsync::Error);
  CHECK_THROWS_AS(quantile(Values{1}, 1.1), gradsync::Error);
  CHECK_THROWS_AS(quantile(Values{1}, kNan), gradsync::Error);
}
