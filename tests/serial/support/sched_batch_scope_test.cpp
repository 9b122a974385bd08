#include "support/sched_batch_scope.h"

#include <sched.h>

#include <thread>

#include <doctest/doctest.h>

using namespace gradsync;

namespace {

int policy() {
  return sched_getscheduler(0);
}

void set_policy(int policy) {
  const sched_param no_priority{};
  REQUIRE(sched_setscheduler(0, policy, &no_priority) == 0);
}

}  // namespace

// In threads of their own: SCHED_IDLE is not always left again without privileges.

TEST_CASE("SCHED_BATCH scope: this thread and those it starts, until its end") {
  int before = -1, within = -1, started = -1, after = -1;
  std::thread([&] {
    before = policy();
    {
      const SchedBatchScope polite;
      within = policy();
      std::thread([&] { started = policy(); }).join();
    }
    after = policy();
  }).join();
  CHECK(before == SCHED_OTHER);
  CHECK(within == SCHED_BATCH);
  CHECK(started == SCHED_BATCH);
  CHECK(after == SCHED_OTHER);
}

TEST_CASE("SCHED_BATCH scope: a policy that was chosen before stays") {
  int within = -1, after = -1;
  std::thread([&] {
    set_policy(SCHED_IDLE);
    {
      const SchedBatchScope polite;
      within = policy();
    }
    after = policy();
  }).join();
  CHECK(within == SCHED_IDLE);
  CHECK(after == SCHED_IDLE);
}
