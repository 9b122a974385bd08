#include "stats/steady_state.h"

#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "serial/expect_error.h"
#include "stats/stop_forecast.h"

using namespace gradsync;

namespace {

/// `slow` values around 30, then `rest` around 10, all with a spread of 1.
Values step_down(std::size_t slow, std::size_t rest) {
  std::mt19937 random(11);
  std::normal_distribution<double> noise(0, 1);
  Values values;
  for (std::size_t i = 0; i < slow + rest; ++i)
    values.push_back((i < slow ? 30 : 10) + noise(random));
  return values;
}

}  // namespace

TEST_CASE("steady_state: by hand, batches of 3, 1, 2, 1, 2, … of equal values") {
  // d = 0: 11 batches, mean 18/11; d = 1: 10 batches of mean 1.5, Σ = 10·0.25, 2.5/100 = 0.025,
  // d = 2: 9 batches 2 1 2 … 2, mean 14/9, Σ = 20/9, /81 = 0.0274; d = 0: Σ = 50/11, /121 = 0.0376.
  Values values;
  for (const double batch : {3, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2})
    values.insert(values.end(), 5, batch);
  const SteadyState state = steady_state(values);
  CHECK(state.verdict == SteadyVerdict::kFound);
  CHECK(state.first == 5);
}

TEST_CASE("steady_state: a slow beginning is left out to the batch in which it ends") {
  for (const std::size_t slow : {10U, 20U, 33U}) {
    const SteadyState state = steady_state(step_down(slow, 200));
    CHECK(state.verdict == SteadyVerdict::kFound);
    CHECK(state.first >= slow / 5 * 5);
    CHECK(state.first < slow + 60);
  }
}

TEST_CASE("steady_state: of a steady series little is left out, of equal values nothing") {
  CHECK(steady_state(step_down(0, 1000)).first < 100);
  const SteadyState equal = steady_state(Values(100, 2.5));
  CHECK(equal.first == 0);
  CHECK(equal.verdict == SteadyVerdict::kFound);
}

TEST_CASE("steady_state: one interruption is no change of state") {
  Values values(100, 2.5);
  values[31] = 400;
  CHECK(steady_state(values).first == 0);
}

TEST_CASE("steady_state: what keeps changing is not steady") {
  Values growing;
  for (int i = 0; i < 200; ++i)
    growing.push_back(i);
  CHECK(steady_state(growing).verdict == SteadyVerdict::kNotSteady);
  CHECK(steady_state(growing).first == 0);
  growing.resize(50);
  CHECK(steady_state(growing).verdict == SteadyVerdict::kNotSteady);
  // A change in the last quarter.
  Values late(200, 1);
  for (std::size_t i = 150; i < 200; ++i)
    late[i] = 5;
  CHECK(steady_state(late).verdict == SteadyVerdict::kNotSteady);
}

TEST_CASE("steady_state: fewer than 50 values are not judged, NaN counts for nothing") {
  CHECK(steady_state(Values{}).verdict == SteadyVerdict::kTooShort);
  CHECK(steady_state(step_down(10, 39)).verdict == SteadyVerdict::kTooShort);
  CHECK(steady_state(step_down(10, 39)).first == 0);
  CHECK(steady_state(Values(50, 1)).verdict == SteadyVerdict::kFound);
  CHECK(steady_state(Values(1000, kNan)).verdict == SteadyVerdict::kTooShort);
  Values holed = step_down(20, 200);
  for (std::size_t i = 100; i < 112; ++i)
    holed[i] = kNan;
  const SteadyState state = steady_state(holed);
  CHECK(state.verdict == SteadyVerdict::kFound);
  CHECK(state.first >= 20);
  CHECK(state.first < 80);
}

TEST_CASE("stop forecast: an iteration and a checkpoint, with a margin") {
  StopForecast forecast(/*save_s=*/3, /*evaluation_iterations=*/50);
  CHECK(forecast.needed_s(/*recorded=*/true, /*evaluates=*/false) == 6);
  forecast.iterated(0.5);
  CHECK(forecast.needed_s(true, false) == 7);
  CHECK(forecast.needed_s(false, false) == 1);
  forecast.saved(1);
  CHECK(forecast.needed_s(true, false) == 3);
}

TEST_CASE("stop forecast: an evaluation comes before the next chance to stop") {
  StopForecast forecast(/*save_s=*/1, /*evaluation_iterations=*/50);
  forecast.iterated(0.5);
  // As many forward passes as 50 iterations: the first one is not known.
  CHECK(forecast.needed_s(true, true) == 3 + 25);
  forecast.evaluated(8);
  CHECK(forecast.needed_s(true, true) == 3 + 12);
  CHECK(forecast.needed_s(true, false) == 3);
}
