// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/numbers.h"
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

/// What the exchange and its checks compute in the device's memory, in the order of a stream: the
/// launches of the kernels, or their CPU reference implementations, where the tests use a simulated
/// device.
struct DeviceKernels {
  void (*pack)(const float* values, std::uint16_t* wire, std::int64_t count, float factor,
               HalfType type, StreamHandle stream) = nullptr;
  void (*unpack)(const std::uint16_t* wire, float* values, std::int64_t count, float factor,
                 HalfType type, StreamHandle stream) = nullptr;
  void (*lowest_bad)(const float* values, std::int64_t count, unsigned long long* lowest,
                     StreamHandle stream) = nullptr;
};

/// The device of one rank: where it computes, where it communicates beside that, and the ring that
/// times both.
struct DeviceLane {
  Device& device;
  EventRing& ring;
  StreamHandle compute = nullptr, communication = nullptr;
  DeviceKernels kernels = {};
};

/// While it lives, a profiler that is attached shows what this thread does under a name (Nsight
/// Systems: a range of NVTX, and in its row of the GPU the kernels launched in it). Ends on the
/// thread it began on. Nothing without a lane.
class ProfilerRange {
 public:
  /// `name` is a literal. The lane's device must outlive the range.
  ProfilerRange(DeviceLane* lane, std::string_view name, std::int64_t value = 0)
      : device_(lane ? &lane->device : nullptr) {
    if (device_) device_->begin_range(name, value);
  }
  ~ProfilerRange() {
    if (device_) device_->end_range();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  Device* device_;
};

}  // namespace gradsync
