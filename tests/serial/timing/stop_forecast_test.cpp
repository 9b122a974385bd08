#include "timing/stop_forecast.h"

#include <doctest/doctest.h>

using namespace gradsync;

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
