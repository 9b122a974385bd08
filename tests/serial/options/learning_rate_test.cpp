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

// tests/e2e/schedules.py compares the rates of each schedule with those of torch.optim.
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
