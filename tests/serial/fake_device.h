// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "machine/device.h"

namespace gradsync::test {

/// A device whose streams are clocks: work moves one, waits bring one up to an event of another,
/// and an event has happened once the host's clock has passed it. Copies are done at once.
///
/// It throws Error kInternal where CUDA would fail, or compute wrong values without a word:
/// - a kernel from a thread whose current device is another one;
/// - a stream or an event of another device, or one that was freed;
/// - a kernel, copy or collective on memory of this device that was freed;
/// - one on memory that another stream uses, with no event between the two.
class FakeDevice : public Device {
 public:
  /// `query_s`: what the host's clock moves on with each look at an event that lies ahead. `index`:
  /// not 0 where the device of a new thread has to be another one.
  explicit FakeDevice(double query_s = 0, int index = 1) : query_s_(query_s), index_(index) {
    current() = index;
  }
  ~FakeDevice() override {
    for (const auto& [memory, block] : blocks_)
      std::free(memory);
  }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  /// The current device of the calling thread.
  static int& current() {
    thread_local int device = 0;
    return device;
  }
  void use_in_this_thread() override { current() = index_; }

  StreamHandle make_stream() override {
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<Point>(Point{this}));
    streams_.back()->stream = streams_.size() - 1;
    return streams_.back().get();
  }
  void free_stream(StreamHandle stream) override { of_this(stream).alive = false; }

  EventHandle make_event() override {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::make_unique<Point>(Point{this}));
    return events_.back().get();
  }
  void free_event(EventHandle event) override { of_this(event).alive = false; }

  void record(EventHandle event, StreamHandle stream) override {
    std::unique_lock lock(mutex_);
    while (is_full(of_this(stream))) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
      now_s_ += 1e-3;
    }
    ++records_;
    of_this(stream).queued_s.push_back(of_this(stream).time_s);
    of_this(event).time_s = std::max(of_this(stream).time_s, now_s_);
    of_this(event).seen = of_this(stream).seen;
  }
  void wait(StreamHandle stream, EventHandle event) override {
    const std::lock_guard lock(mutex_);
    of_this(stream).time_s = std::max(of_this(stream).time_s, of_this(event).time_s);
    see(of_this(stream).seen, of_this(event).seen);
  }
  bool happened(EventHandle event) override {
    const std::lock_guard lock(mutex_);
    if (of_this(event).time_s > now_s_) now_s_ += query_s_;
    if (of_this(event).time_s > now_s_) return false;
    see(host_seen_, of_this(event).seen);
    return true;
  }
  double elapsed_s(EventHandle from, EventHandle to) override {
    return (of_this(to).time_s - of_this(from).time_s) * (1 + drift_);
  }
  /// From now on the host waits, where it records an event on a stream of which so many lie ahead,
  /// until one of them has happened: as in a launch where a device's queue is full.
  void set_queue(std::size_t events) { queue_ = events; }
  /// From now on the device's timer runs fast by this part of the time.
  void set_drift(double drift) { drift_ = drift; }

  void begin_range(std::string_view name, std::int64_t value) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t>& open = open_ranges_[std::this_thread::get_id()];
    ranges_.push_back({std::string(name), value, open.empty() ? "" : ranges_[open.back()].name});
    open.push_back(ranges_.size() - 1);
  }
  void end_range() override {
    const std::lock_guard lock(mutex_);
    open_ranges_.at(std::this_thread::get_id()).pop_back();
  }

  void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override {
    use_in_this_thread();
    touch(stream, from, bytes, Use::kRead);
    touch(stream, to, bytes, Use::kWrite);
    std::memcpy(to, from, bytes);
  }
  void* make_memory(std::size_t bytes) override { return make_block(bytes); }
  void free_memory(void* memory) override { free_block(memory); }
  void* make_pinned(std::size_t bytes) override { return make_block(bytes); }
  void free_pinned(void* memory) override { free_block(memory); }

  void wait_for(EventHandle event) override {
    const std::lock_guard lock(mutex_);
    ++host_waits_;
    blocked_waits_ += of_this(event).time_s > now_s_;
    now_s_ = std::max(now_s_, of_this(event).time_s);
    see(host_seen_, of_this(event).seen);
  }
  std::int64_t host_waits() const override { return host_waits_; }
  /// Those in which the device had not come to the event.
  std::int64_t blocked_waits() const { return blocked_waits_; }

  /// A range as it was begun.
  struct Range {
    std::string name;
    std::int64_t value;
    std::string within;  ///< name of the range around it; empty: none
  };
  const std::vector<Range>& ranges() const { return ranges_; }
  /// Ranges that were begun and not ended.
  std::size_t open_ranges() const {
    std::size_t open = 0;
    for (const auto& thread : open_ranges_)
      open += thread.second.size();
    return open;
  }

  /// Work of this length goes to the end of a stream.
  void work(StreamHandle stream, double time_s) {
    const std::lock_guard lock(mutex_);
    of_this(stream).time_s = std::max(of_this(stream).time_s, now_s_) + time_s;
  }

  enum class Use { kRead, kWrite };
  /// What is enqueued on the stream of any device uses this memory.
  static void touch(StreamHandle stream, const void* memory, std::size_t bytes, Use use) {
    Point& point = *static_cast<Point*>(stream);
    const std::lock_guard lock(point.device->mutex_);
    point.device->note({static_cast<const char*>(memory), bytes}, point.device->of_this(stream),
                       use);
  }
  /// The same of a kernel, which needs its device to be the current one.
  static void launch(StreamHandle stream, const void* memory, std::size_t bytes, Use use) {
    require(static_cast<Point*>(stream)->device->index_ == current(),
            "invalid resource handle: the stream is not of the thread's current device");
    touch(stream, memory, bytes, use);
  }
  /// All streams come to their end, as where what they wait for is aborted.
  void end_streams() {
    const std::lock_guard lock(mutex_);
    for (const auto& stream : streams_)
      now_s_ = std::max(now_s_, stream->time_s);
  }

  void pass(double time_s) { now_s_ += time_s; }
  double now_s() const { return now_s_; }
  double end_of(StreamHandle stream) { return of_this(stream).time_s; }
  std::size_t events_made() const { return events_.size(); }
  std::size_t records() const { return records_; }
  /// Pieces of memory made and not freed.
  std::size_t blocks() const {
    return static_cast<std::size_t>(std::count_if(
        blocks_.begin(), blocks_.end(), [](const auto& block) { return !block.second.freed; }));
  }

 private:
  /// By stream: how many of its uses of memory lie before a moment.
  using Seen = std::map<std::size_t, std::size_t>;
  /// Where a stream, or the event recorded on it, is.
  struct Point {
    FakeDevice* device;
    double time_s = 0;
    Seen seen = {};
    std::size_t stream = 0;
    bool alive = true;
    std::deque<double> queued_s = {};  ///< of the events recorded on it that lie ahead
  };
  struct Block {
    std::size_t bytes;
    bool freed = false;
  };
  struct Piece {
    const char* begin;
    std::size_t bytes;
    bool meets(const Piece& other) const {
      return begin < other.begin + other.bytes && other.begin < begin + bytes;
    }
    bool holds(const Piece& other) const {
      return begin <= other.begin && other.begin + other.bytes <= begin + bytes;
    }
  };
  struct Used {
    Piece where;
    std::size_t stream, number;
    Use use;
  };

  static void require(bool condition, const std::string& what) {
    if (!condition) throw Error(ExitCode::kInternal, "stand-in device: " + what);
  }
  static void see(Seen& seen, const Seen& more) {
    for (const auto& [stream, number] : more)
      seen[stream] = std::max(seen[stream], number);
  }
  Point& of_this(void* handle) {
    Point& point = *static_cast<Point*>(handle);
    require(point.device == this, "a stream or event of another device");
    require(point.alive, "a stream or event that was freed");
    return point;
  }

  bool is_full(Point& stream) {
    while (!stream.queued_s.empty() && stream.queued_s.front() <= now_s_)
      stream.queued_s.pop_front();
    return stream.queued_s.size() >= queue_;
  }

  void* make_block(std::size_t bytes) {
    use_in_this_thread();
    const std::lock_guard lock(mutex_);
    void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
    blocks_[memory] = {bytes};
    return memory;
  }
  /// The address is not given out again, so that each later use is seen.
  void free_block(void* memory) {
    const std::lock_guard lock(mutex_);
    if (memory == nullptr) return;
    Block& block = blocks_.at(memory);
    require(!block.freed, "memory is freed twice");
    block.freed = true;
    std::memset(memory, 0xff, block.bytes);
  }

  void note(const Piece& where, Point& stream, Use use) {
    for (const auto& [begin, block] : blocks_)
      require(!block.freed || !where.meets({static_cast<const char*>(begin), block.bytes}),
              "memory that was freed");
    see(stream.seen, host_seen_);
    for (const Used& before : used_)
      require(stream.seen[before.stream] >= before.number || before.stream == stream.stream ||
                  !where.meets(before.where) || (use == Use::kRead && before.use == Use::kRead),
              "memory that another stream uses, and no event orders the two");
    std::erase_if(used_, [&](const Used& before) {
      const bool same = before.use == Use::kRead && before.stream == stream.stream;
      return where.holds(before.where) && (use == Use::kWrite || same);
    });
    used_.push_back({where, stream.stream, ++stream.seen[stream.stream], use});
  }

  mutable std::mutex mutex_;
  double query_s_, now_s_ = 0, drift_ = 0;
  int index_;
  std::size_t queue_ = std::numeric_limits<std::size_t>::max();
  std::vector<std::unique_ptr<Point>> streams_, events_;
  std::map<void*, Block> blocks_;
  std::vector<Used> used_;
  Seen host_seen_;
  std::size_t records_ = 0;
  std::vector<Range> ranges_;
  std::map<std::thread::id, std::vector<std::size_t>> open_ranges_;  ///< places in ranges_
  std::int64_t host_waits_ = 0, blocked_waits_ = 0;
};

}  // namespace gradsync::test
