#include "support/sched_batch_scope.h"

#include <sched.h>

namespace gradsync {

namespace {

constexpr int kThisThread = 0;

bool set_policy(int policy) {
  const sched_param no_priority{};
  return sched_setscheduler(kThisThread, policy, &no_priority) == 0;
}

}  // namespace

SchedBatchScope::SchedBatchScope()
    : changed_(sched_getscheduler(kThisThread) == SCHED_OTHER && set_policy(SCHED_BATCH)) {}

SchedBatchScope::~SchedBatchScope() {
  if (changed_) set_policy(SCHED_OTHER);
}

}  // namespace gradsync
