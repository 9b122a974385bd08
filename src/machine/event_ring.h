#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "machine/device.h"

namespace gradsync {

/// A moment on a stream of the device: a ticket of the ring that recorded it.
struct Mark {
  std::int64_t ticket = -1;  ///< -1: none

  bool operator==(const Mark&) const = default;
};

/// Events with time, recorded one after the other and read at least one iteration later, when they
/// have happened: nothing waits for them. The ring grows to what is in use at once, in the first
/// iterations, and makes no event after that.
///
/// Any thread may mark; reading and releasing belong to the thread of the loop.
class EventRing {
 public:
  /// The device must outlive it.
  explicit EventRing(Device& device, std::size_t events = 64);
  ~EventRing();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  /// Where the stream is now.
  Mark mark(StreamHandle stream);
  /// What follows on the stream waits for the mark.
  void wait(StreamHandle stream, Mark mark);
  /// Whether the mark was made and not released since.
  bool in_use(Mark mark) const;
  bool happened(Mark mark);
  /// Both have happened.
  double elapsed_s(Mark from, Mark to);
  void wait_for(Mark mark);

  /// The next mark's ticket: all marks of an iteration lie between two of these.
  std::int64_t next_ticket() const;
  /// Marks below `ticket` are not used any more.
  void release_below(std::int64_t ticket);
  std::size_t events() const;

 private:
  void grow();
  /// Throws Error kInternal for a mark that was released or never made.
  EventHandle event_of(Mark mark) const;

  Device& device_;
  mutable std::mutex mutex_;
  std::vector<EventHandle> events_;  ///< ticket t lies at t modulo their number
  std::int64_t first_ = 0, next_ = 0;
};

}  // namespace gradsync
