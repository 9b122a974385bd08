#include "support/wakes_politely.h"

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

TEST_CASE("wakes politely: this thread and those it starts, until it goes") {
  int before = -1, within = -1, started = -1, after = -1;
  std::thread([&] {
    before = policy();
    {
      const WakesPolitely polite;
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

TEST_CASE("wakes politely: a policy that somebody chose stays") {
  int within = -1, after = -1;
  std::thread([&] {
    set_policy(SCHED_IDLE);
    {
      const WakesPolitely polite;
      within = policy();
    }
    after = policy();
  }).join();
  CHECK(within == SCHED_IDLE);
  CHECK(after == SCHED_IDLE);
}
