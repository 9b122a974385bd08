// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/numbers.h"
#include "stats/bandwidth.h"

namespace gradsync {

/// A CUDA stream (cudaStream_t) for files that include no header of CUDA.
using StreamHandle = void*;

/// An event as it crosses between files that know no CUDA header: a cudaEvent_t.
using EventHandle = void*;

/// What is asked of the device a rank computes on: streams, events that carry time, copies and
/// page-locked memory. One implementation over CUDA (cuda_mpi.cpp); the tests have one whose
/// streams are clocks that they move.
///
/// All calls but `wait_for` return at once and may come from any thread. Everything throws Error
/// kInternal where the runtime reports an error: it is sticky, and nothing later can be trusted.
class Device {
 public:
  virtual ~Device() = default;

  /// Makes this the current device of the calling thread, which is where its kernels and MPI's
  /// copies run. A new thread's current device is the first one.
  virtual void use_in_this_thread() = 0;

  /// A stream that waits for no other one by itself.
  virtual StreamHandle make_stream() = 0;
  virtual void free_stream(StreamHandle stream) = 0;

  virtual EventHandle make_event() = 0;
  virtual void free_event(EventHandle event) = 0;
  /// The event happens when the stream has come to where it is now.
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  /// What follows on the stream waits for the event's last record.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  /// Whether the last record has happened.
  virtual bool happened(EventHandle event) = 0;
  /// Seconds between two that have happened; resolution about 0.5 µs, before H100 1 µs.
  virtual double elapsed_s(EventHandle from, EventHandle to) = 0;

  /// Names what this thread does until `end_range` to a profiler that is attached, with a number to
  /// show beside it. Ranges of a thread nest. `name` is a literal; nothing is kept of it.
  virtual void begin_range(std::string_view name, std::int64_t value) = 0;
  virtual void end_range() = 0;

  /// Copies in the order of the stream. Host memory must be page-locked, or the host waits.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) = 0;

  /// Memory of the device. Throws Error kOutOfMemory. Freeing waits for what the device holds.
  virtual void* make_memory(std::size_t bytes) = 0;
  virtual void free_memory(void* memory) = 0;

  /// Page-locked memory of the host.
  virtual void* make_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* memory) = 0;

  /// The only call in which the host waits for the device: returns when the event has happened.
  virtual void wait_for(EventHandle event) = 0;
  /// How often that was called: in the loop of training over NCCL, never.
  virtual std::int64_t host_waits() const = 0;
};

/// Page-locked memory of the host; grows, never shrinks, and loses its contents when it grows.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(Device& device) : device_(device) {}
  ~PinnedBuffer() { device_.free_pinned(memory_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::size_t bytes() const { return bytes_; }
  /// At least `bytes`; what was returned before is gone when it had to grow, so nothing may still
  /// be copied from or to it.
  void* at_least(std::size_t bytes) {
    if (bytes <= bytes_) return memory_;
    device_.free_pinned(memory_);
    memory_ = nullptr;
    memory_ = device_.make_pinned(bytes);
    bytes_ = bytes;
    return memory_;
  }

 private:
  Device& device_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The CUDA device of this index, among the visible ones. Throws Error kEnvironment in a build
/// without CUDA and where the device cannot be used. Makes the device's context.
std::unique_ptr<Device> make_cuda_device(int index);

/// What names a communicator before it exists: rank 0 makes it, all ranks need it.
using NcclId = std::array<char, 128>;

/// A communicator of NCCL's as it crosses between files that know no NCCL header.
using NcclCommunicator = void*;

/// The calls of NCCL that gradsync makes; the tests have their own. Collectives are enqueued on the
/// stream and return at once. Counts are values of `type`. Everything throws Error kEnvironment,
/// with NCCL's own words, where NCCL refuses a call.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual NcclId make_id() = 0;
  /// Collective over `ranks` processes: returns when all have joined. On the current device.
  virtual NcclCommunicator join(const NcclId& id, int rank, int ranks) = 0;
  /// After the last collective, on all ranks.
  virtual void leave(NcclCommunicator communicator) = 0;
  /// Ends what is under way without the other ranks. May be called beside a blocked call.
  virtual void abort(NcclCommunicator communicator) noexcept = 0;
  /// What went wrong with a collective after it was enqueued; empty while nothing did.
  virtual std::string lost(NcclCommunicator communicator) = 0;

  /// In place: the sum over the ranks. NCCL's own mean (ncclAvg) would keep float32 off the sums of
  /// NVSwitch, which know plain additions only (NCCL 2.28, ncclNvlsSupported).
  virtual void all_reduce(void* data, std::size_t count, ValueType type,
                          NcclCommunicator communicator, StreamHandle stream) = 0;
  /// In place on `root`; the other ranks' data is left as it was.
  virtual void reduce(void* data, std::size_t count, ValueType type, int root,
                      NcclCommunicator communicator, StreamHandle stream) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                         StreamHandle stream) = 0;
  /// `bytes` of each rank, in the order of the ranks in `all`.
  virtual void all_gather(const void* one, void* all, std::size_t bytes,
                          NcclCommunicator communicator, StreamHandle stream) = 0;
  /// `all` holds `count` values for each rank, which gets the sum of those for it.
  virtual void reduce_scatter(const void* all, void* one, std::size_t count, ValueType type,
                              NcclCommunicator communicator, StreamHandle stream) = 0;
  virtual void send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
                    StreamHandle stream) = 0;
  virtual void receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                       StreamHandle stream) = 0;
  /// Sends and receives between these two run together.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
};

/// NCCL itself. Throws Error kEnvironment in a build without it.
std::unique_ptr<NcclApi> make_nccl();

}  // namespace gradsync
