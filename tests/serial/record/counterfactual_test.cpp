#include "record/counterfactual.h"

#include <cmath>

#include <doctest/doctest.h>

using namespace gradsync;

namespace {

/// A window in which every rank took `wall_s` and computed for `compute_s`.
WindowRow window(const char* kind, std::int64_t round, double wall_s,
                 double compute_s = kNotMeasured) {
  return {kind, round, 10, {{wall_s, compute_s, 0, 0}, {wall_s, compute_s, 0, 0}}};
}

}  // namespace

TEST_CASE("counterfactual: gain, OSU form, contention and cost by hand") {
  // Compute 60 ms, communication 40 ms, serial 100 ms, overlapped 72 ms with compute of 64 ms.
  const std::vector<WindowRow> windows = {
      window("compute-only", 0, 0.060, 0.060), window("communication-only", 0, 0.040),
      window("serial", 0, 0.100, 0.060), window("overlapped", 0, 0.072, 0.064),
      window("overlapped-unmeasured", 0, 0.070)};
  const Counterfactual result = counterfactual(windows);
  CHECK(result.overlap_gain() == doctest::Approx(0.7));        // 28 of 40
  CHECK(result.osu_overlap_percent() == doctest::Approx(70));  // 1 − 12/40
  CHECK(result.contention_s() == doctest::Approx(0.004));
  CHECK(result.measuring_percent() == doctest::Approx(100 * 2.0 / 70));
  CHECK(result.rounds == 1);
  CHECK(result.iterations == 10);
}

TEST_CASE("counterfactual: the median over rounds of the mean over ranks") {
  std::vector<WindowRow> windows = {window("serial", 0, 1), window("serial", 1, 9),
                                    window("serial", 2, 2)};
  windows[2].ranks = {{1, 0, 0, 0}, {4, 0, 0, 0}};  // mean 2.5
  CHECK(counterfactual(windows).serial_s == doctest::Approx(2.5));
  CHECK(counterfactual(windows).rounds == 3);
  windows[2].ranks[0].iteration_s = kNotMeasured;  // a rank that did not measure is left out
  CHECK(counterfactual(windows).serial_s == doctest::Approx(4));
}

TEST_CASE("counterfactual: a mode without overlap has no gain and no contention") {
  const std::vector<WindowRow> windows = {
      window("compute-only", 0, 0.060, 0.060), window("communication-only", 0, 0.040),
      window("overlapped", 0, 0.110, 0.061), window("overlapped-unmeasured", 0, 0.110)};
  const Counterfactual result = counterfactual(windows);
  CHECK(std::isnan(result.overlap_gain()));
  CHECK(std::isnan(result.contention_s()));
  CHECK(result.osu_overlap_percent() == 0);  // slower than one after the other
  CHECK(result.measuring_percent() == 0);
}

TEST_CASE("counterfactual: without windows everything is n/a") {
  const Counterfactual none = counterfactual({});
  CHECK(std::isnan(none.overlap_gain()));
  CHECK(std::isnan(none.osu_overlap_percent()));
  CHECK(std::isnan(none.measuring_percent()));
  CHECK(none.rounds == 0);
  // One rank: nothing is communicated.
  const Counterfactual alone =
      counterfactual({window("compute-only", 0, 0.06, 0.06), window("overlapped", 0, 0.06, 0.06)});
  CHECK(std::isnan(alone.osu_overlap_percent()));
}
