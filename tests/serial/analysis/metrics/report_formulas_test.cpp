#include <cmath>

#include <doctest/doctest.h>

#include "analysis/metrics/bandwidth.h"
#include "analysis/metrics/quantized_figures.h"
#include "analysis/metrics/scaling.h"

using namespace gradsync;
using namespace gradsync::report;
using doctest::Approx;

// Worked by hand. The example of the conventions: S = 1e9 bytes, 4 ranks, 10 iterations, 5 s of
// communication in all, so 0.5 s a message and 2(n − 1)/n = 1.5.
TEST_CASE("formulas: conventions of bandwidth") {
  const EpochCommunication epoch{1e9, 4, 10, 5};
  CHECK(bandwidth(BandwidthConvention::kBusbw, epoch) == Approx(3e9));
  CHECK(bandwidth(BandwidthConvention::kMessage, epoch) == Approx(0.2e9));
  CHECK(bandwidth(BandwidthConvention::kRingEpoch, epoch) == Approx(0.3e9));
  CHECK(bandwidth(BandwidthConvention::kTotalVolume, epoch) == Approx(12e9));
  for (std::size_t c = 0; c < kConventionNames.size(); ++c) {
    const auto convention = static_cast<BandwidthConvention>(c);
    CHECK(std::isnan(bandwidth(convention, {1e9, 1, 10, 5})));  // one rank sends nothing
    CHECK(std::isnan(bandwidth(convention, {1e9, 4, 10, 0})));
    CHECK(std::isnan(bandwidth(convention, {1e9, 4, 10, -5})));
    CHECK(std::isnan(bandwidth(convention, {kNotMeasured, 4, 10, 5})));
    CHECK(parse_convention(convention_name(convention)) == convention);
    CHECK_FALSE(convention_formula(convention).empty());
  }
  CHECK_FALSE(parse_convention("bus"));
  CHECK(convention_unit(BandwidthConvention::kRingEpoch) == "GiB/s");
  CHECK(convention_unit_bytes(BandwidthConvention::kRingEpoch) == 1073741824.0);
  CHECK(convention_unit(BandwidthConvention::kBusbw) == "GB/s");
}

// nccl-tests: an all-reduce of 1 MB on 8 ranks in 1 ms has algbw 1 GB/s, busbw 1.75 GB/s.
TEST_CASE("formulas: algbw and busbw of each collective") {
  using enum CollectiveKind;
  CHECK(algbw(1e6, 1e-3) == Approx(1e9));
  CHECK(busbw(kAllReduce, 1e6, 8, 1e-3) == Approx(1.75e9));
  CHECK(busbw(kBroadcast, 1e6, 8, 1e-3) == Approx(1e9));
  CHECK(busbw(kReduce, 1e6, 8, 1e-3) == Approx(1e9));
  // S counts all ranks: 8 MB, of which 7 cross the root's link.
  CHECK(message_bytes(kGather, 1e6, 8) == 8e6);
  CHECK(message_bytes(kAllReduce, 1e6, 8) == 1e6);
  CHECK(busbw(kGather, 1e6, 8, 1e-3) == Approx(7e9));
  CHECK(busbw(kScatter, 1e6, 8, 1e-3) == Approx(7e9));
  CHECK(busbw(kAllGather, 1e6, 8, 1e-3) == Approx(7e9));
  for (const auto kind : {kAllReduce, kBroadcast, kReduce, kGather, kScatter, kAllGather}) {
    CHECK(std::isnan(busbw(kind, 1e6, 1, 1e-3)));
    CHECK(std::isnan(busbw(kind, 1e6, 8, 0)));
  }
  CHECK(std::isnan(busbw_factor(kBarrier, 8)));
}

TEST_CASE("formulas: predicted all-reduce times") {
  CHECK(allreduce_tree_s(1e9, 1e10, 8) == Approx(0.3));
  CHECK(allreduce_ring_s(1e9, 1e10, 8) == Approx(0.175));
  CHECK(allreduce_tree_s(1e9, 1e10, 2) == Approx(allreduce_ring_s(1e9, 1e10, 2)));
  CHECK(allreduce_tree_s(1e9, 1e10, 1) == 0);
  CHECK(allreduce_ring_s(1e9, 1e10, 1) == 0);
  CHECK(std::isnan(allreduce_ring_s(1e9, 0, 8)));
  CHECK(std::isnan(allreduce_tree_s(1e9, 1e10, 0)));
}

TEST_CASE("formulas: speedup, efficiency, derived split") {
  CHECK(speedup(60, 20) == 3);
  CHECK(strong_efficiency(60, 1, 20, 4) == Approx(0.75));
  CHECK(strong_efficiency(60, 2, 20, 4) == Approx(1.5));  // super-linear stays so
  CHECK(weak_efficiency(0.1, 0.125) == Approx(0.8));
  CHECK(weak_speedup(0.1, 0.125, 4) == Approx(3.2));
  CHECK(derived_compute(60, 4) == 15);
  CHECK(derived_communication(60, 20, 4) == 5);
  CHECK(derived_communication(60, 12, 4) == -3);  // shown as it is
  CHECK(derived_communication(60, 60, 1) == 0);
  CHECK(std::isnan(speedup(60, 0)));
  CHECK(std::isnan(speedup(-60, 20)));
  CHECK(std::isnan(strong_efficiency(60, 1, 20, 0)));
  CHECK(std::isnan(derived_communication(kNotMeasured, 20, 4)));
}

TEST_CASE("formulas: accuracy of a quantized network, and what it lost") {
  QuantizedStepRow whole, small, none;
  whole.name = "fp32";
  whole.images = small.images = 400;
  whole.correct = 300;
  small.correct = 290;
  CHECK(accuracy_percent(whole) == Approx(75));
  CHECK(std::isnan(accuracy_percent(none)));
  Quantization study;
  CHECK(std::isnan(drop_points(study, small)));
  study.steps = {whole, small};
  CHECK(drop_points(study, small) == Approx(2.5));
}
