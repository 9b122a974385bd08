#pragma once

namespace gradsync {

/// While it lives, the thread that made it does not push another off a core when it wakes up
/// (Linux: SCHED_BATCH), and threads that it starts neither. For a thread that computes, on the
/// core of one that communicates: woken by the end of a message it would take the core before the
/// next message is on its way. Where another policy than the usual one was set, that stays.
class SchedBatchScope {
 public:
  SchedBatchScope();
  /// By the same thread.
  ~SchedBatchScope();
  SchedBatchScope(const SchedBatchScope&) = delete;
  SchedBatchScope& operator=(const SchedBatchScope&) = delete;

 private:
  bool changed_ = false;
};

}  // namespace gradsync
