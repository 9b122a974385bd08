#include "schedule/batch_schedule.h"

#include <doctest/doctest.h>

#include "serial/expect_error.h"

using namespace gradsync;

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
