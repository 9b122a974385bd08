#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/device.h"

namespace gradsync::test {

/// A device whose streams are clocks: work moves one, waits bring one up to an event of another,
/// and an event has happened once the host's clock has passed it. Copies are done at once.
class FakeDevice : public Device {
 public:
  /// `query_s`: what the host's clock moves on with each look at an event that lies ahead.
  explicit FakeDevice(double query_s = 0) : query_s_(query_s) {}

  StreamHandle make_stream() override {
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<double>(0));
    return streams_.back().get();
  }
  void free_stream(StreamHandle) override {}

  EventHandle make_event() override {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::make_unique<double>(0));
    return events_.back().get();
  }
  void free_event(EventHandle) override {}

  void record(EventHandle event, StreamHandle stream) override {
    const std::lock_guard lock(mutex_);
    at(event) = std::max(at(stream), now_s_);
  }
  void wait(StreamHandle stream, EventHandle event) override {
    const std::lock_guard lock(mutex_);
    at(stream) = std::max(at(stream), at(event));
  }
  bool happened(EventHandle event) override {
    const std::lock_guard lock(mutex_);
    if (at(event) <= now_s_) return true;
    now_s_ += query_s_;
    return at(event) <= now_s_;
  }
  double elapsed_s(EventHandle from, EventHandle to) override { return at(to) - at(from); }

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

  void copy(void* to, const void* from, std::size_t bytes, StreamHandle) override {
    std::memcpy(to, from, bytes);
  }
  void* make_memory(std::size_t bytes) override { return std::malloc(bytes); }
  void free_memory(void* memory) override { std::free(memory); }
  void* make_pinned(std::size_t bytes) override { return std::malloc(bytes); }
  void free_pinned(void* memory) override { std::free(memory); }

  void wait_for(EventHandle event) override {
    const std::lock_guard lock(mutex_);
    ++host_waits_;
    now_s_ = std::max(now_s_, at(event));
  }
  std::int64_t host_waits() const override { return host_waits_; }

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
    at(stream) = std::max(at(stream), now_s_) + time_s;
  }
  void pass(double time_s) { now_s_ += time_s; }
  double now_s() const { return now_s_; }
  double end_of(StreamHandle stream) const { return at(stream); }
  std::size_t events_made() const { return events_.size(); }

 private:
  static double& at(void* clock) { return *static_cast<double*>(clock); }

  std::mutex mutex_;
  double query_s_, now_s_ = 0;
  std::vector<std::unique_ptr<double>> streams_, events_;
  std::vector<Range> ranges_;
  std::map<std::thread::id, std::vector<std::size_t>> open_ranges_;  ///< places in ranges_
  std::int64_t host_waits_ = 0;
};

}  // namespace gradsync::test
