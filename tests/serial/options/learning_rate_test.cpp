// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>

#include "options/options.h"
#include "serial/expect_error.h"

using namespace gradsync;
using doctest::Approx;

namespace {

LearningRateSettings of(LrSchedule schedule, std::int64_t epochs) {
  LearningRateSettings settings;
  settings.schedule = schedule;
  settings.epochs = epochs;
  return settings;
}

}  // namespace

TEST_CASE("the full rate is --lr times the batch over its base, or the root of that") {
  LearningRateSettings settings = of(LrSchedule::kConstant, 10);
  settings.base = 0.1;
  settings.base_batch = 256;
  settings.global_batch = 8192;
  CHECK(LearningRate(settings).full() == Approx(0.1));
  settings.scaling = LrScaling::kLinear;
  CHECK(LearningRate(settings).full() == Approx(3.2));
  CHECK(LearningRate(settings).at(9.99) == Approx(3.2));
  settings.scaling = LrScaling::kSqrt;
  CHECK(LearningRate(settings).full() == Approx(0.1 * std::sqrt(32)));
}

TEST_CASE("a gradual warm-up rises from the unscaled rate to the full one, a constant one jumps") {
  LearningRateSettings settings = of(LrSchedule::kConstant, 10);
  settings.base = 0.1;
  settings.global_batch = 1024;
  settings.scaling = LrScaling::kLinear;
  settings.warmup_epochs = 5;
  const LearningRate gradual(settings);
  CHECK(gradual.at(0) == Approx(0.1));
  CHECK(gradual.at(2.5) == Approx(0.45));
  CHECK(gradual.at(5) == Approx(0.8));
  settings.warmup = LrWarmup::kConstant;
  const LearningRate constant(settings);
  CHECK(constant.at(4.999) == Approx(0.1));
  CHECK(constant.at(5) == Approx(0.8));
}

TEST_CASE("without scaling the warm-up starts at a tenth, or at a given factor") {
  LearningRateSettings settings = of(LrSchedule::kConstant, 10);
  settings.base = 0.4;
  settings.warmup_epochs = 2;
  CHECK(LearningRate(settings).at(0) == Approx(0.04));
  settings.warmup_from = 0;
  CHECK(LearningRate(settings).at(0) == 0);
  CHECK(LearningRate(settings).at(1) == Approx(0.2));
}

TEST_CASE("a warm-up does not fall to a rate that scaling has lowered") {
  LearningRateSettings settings = of(LrSchedule::kConstant, 10);
  settings.base = 0.4;
  settings.global_batch = 64;
  settings.base_batch = 256;
  settings.scaling = LrScaling::kLinear;
  settings.warmup_epochs = 2;
  CHECK(LearningRate(settings).full() == Approx(0.1));
  CHECK(LearningRate(settings).at(0) == Approx(0.01));
}

TEST_CASE("step and multistep fall at their epochs") {
  LearningRateSettings step = of(LrSchedule::kStep, 90);
  step.step_epochs = 30;
  CHECK(LearningRate(step).at(29.99) == Approx(0.1));
  CHECK(LearningRate(step).at(30) == Approx(0.01));
  CHECK(LearningRate(step).at(89) == Approx(0.001));
  LearningRateSettings multistep = of(LrSchedule::kMultistep, 100);
  multistep.milestones = {10, 40};
  multistep.decay = 0.5;
  CHECK(LearningRate(multistep).at(9.999) == Approx(0.1));
  CHECK(LearningRate(multistep).at(10) == Approx(0.05));
  CHECK(LearningRate(multistep).at(40) == Approx(0.025));
  CHECK(LearningRate(multistep).at(99) == Approx(0.025));
}

TEST_CASE("cosine and polynomial go from the full rate to the lowest, after the warm-up") {
  LearningRateSettings cosine = of(LrSchedule::kCosine, 12);
  cosine.minimum = 0.01;
  cosine.warmup_epochs = 2;
  CHECK(LearningRate(cosine).at(2) == Approx(0.1));
  CHECK(LearningRate(cosine).at(7) == Approx(0.055));
  CHECK(LearningRate(cosine).at(12) == Approx(0.01));
  LearningRateSettings polynomial = of(LrSchedule::kPolynomial, 10);
  polynomial.power = 2;
  CHECK(LearningRate(polynomial).at(0) == Approx(0.1));
  CHECK(LearningRate(polynomial).at(5) == Approx(0.025));
  CHECK(LearningRate(polynomial).at(10) == Approx(0).epsilon(1e-12));
}

TEST_CASE("cyclic rises and falls in straight lines, again and again") {
  LearningRateSettings settings = of(LrSchedule::kCyclic, 8);
  settings.minimum = 0.02;
  settings.cycle_epochs = 4;
  const LearningRate rate(settings);
  CHECK(rate.at(0) == Approx(0.02));
  CHECK(rate.at(1) == Approx(0.06));
  CHECK(rate.at(2) == Approx(0.1));
  CHECK(rate.at(3) == Approx(0.06));
  CHECK(rate.at(4) == Approx(0.02));
  CHECK(rate.at(6) == Approx(0.1));
}

TEST_CASE("a schedule that does not cover the epochs is refused, with what would") {
  LearningRateSettings settings = of(LrSchedule::kMultistep, 10);
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "--lr-milestones"));
  settings.milestones = {5, 10};
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "epochs from 1 to 9"));
  settings.milestones = {5, 5};
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "not increasing"));
  settings = of(LrSchedule::kStep, 10);
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "1 to 9"));
  settings.step_epochs = 10;
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "--lr-step-epochs 10"));
  settings = of(LrSchedule::kCyclic, 10);
  settings.cycle_epochs = 11;
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "--lr-cycle-epochs 11"));
  settings = of(LrSchedule::kConstant, 10);
  settings.warmup_epochs = 10;
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "--warmup-epochs 10"));
  settings = of(LrSchedule::kCosine, 10);
  settings.minimum = 0.2;
  CHECK(contains(refusal([&] { LearningRate{settings}; }), "--lr-min 0.2"));
}

TEST_CASE("a batch holds from its epoch to the next one's") {
  const BatchSchedule schedule("0:128, 3:512,10:2048");
  CHECK(schedule.at(0) == 128);
  CHECK(schedule.at(2) == 128);
  CHECK(schedule.at(3) == 512);
  CHECK(schedule.at(9) == 512);
  CHECK(schedule.at(10) == 2048);
  CHECK(schedule.at(1000) == 2048);
  CHECK_FALSE(schedule.empty());
  CHECK(BatchSchedule().empty());
}

TEST_CASE("what is no batch schedule is refused with the reason") {
  const auto why = [](const char* text) { return refusal([&] { BatchSchedule{text}; }); };
  CHECK(contains(why(""), "no colon"));
  CHECK(contains(why("128"), "no colon"));
  CHECK(contains(why("1:128"), "epoch 0"));
  CHECK(contains(why("0:128,3:256,3:512"), "not increasing"));
  CHECK(contains(why("0:128,5:256,3:512"), "not increasing"));
  CHECK(contains(why("0:0"), "below 1"));
  CHECK(contains(why("0:-5"), "below 1"));
  CHECK(contains(why("0:x"), "not a whole number"));
  CHECK(contains(why("0:128,3"), "\"3\" has no colon"));
}

TEST_CASE("a schedule must fit the epochs, the ranks and the accumulation") {
  const BatchSchedule schedule("0:128,3:510");
  schedule.require_fits(4, 2);
  CHECK(contains(refusal([&] { schedule.require_fits(3, 2); }), "beyond the 3 epochs"));
  CHECK(contains(refusal([&] { schedule.require_fits(4, 4); }), "510 does not divide by 4"));
}
