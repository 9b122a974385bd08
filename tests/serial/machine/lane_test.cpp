// SPDX-License-Identifier: BSD-3-Clause
#include "machine/lane.h"

#include <functional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "serial/expect_error.h"
#include "serial/fake_device.h"

using namespace gradsync;
using gradsync::test::FakeDevice;

TEST_CASE("marks carry the times of their streams and are read once they have happened") {
  FakeDevice device;
  EventRing ring(device);
  const StreamHandle stream = device.make_stream();
  const Mark begin = ring.mark(stream);
  device.work(stream, 3);
  const Mark end = ring.mark(stream);
  CHECK(ring.happened(begin));
  CHECK_FALSE(ring.happened(end));
  device.pass(3);
  CHECK(ring.happened(end));
  CHECK(ring.elapsed_s(begin, end) == 3);
  CHECK(device.host_waits() == 0);
}

TEST_CASE("a stream continues after the mark of another one that it waits for") {
  FakeDevice device;
  EventRing ring(device);
  const StreamHandle compute = device.make_stream(), communication = device.make_stream();
  device.work(compute, 5);
  const Mark ready = ring.mark(compute);
  device.work(compute, 5);
  ring.wait(communication, ready);
  device.work(communication, 2);
  CHECK(device.end_of(communication) == 7);
  CHECK(device.end_of(compute) == 10);
}

TEST_CASE("the ring grows to what is in use and makes no event after that") {
  FakeDevice device;
  EventRing ring(device, 2);
  const StreamHandle stream = device.make_stream();
  std::int64_t unsettled = 0;
  for (int iteration = 0; iteration < 100; ++iteration) {
    if (iteration == 3) CHECK(ring.events() == 32);
    const std::int64_t first = ring.next_ticket();
    const Mark begin = ring.mark(stream);
    for (int i = 0; i < 5; ++i)
      device.work(stream, 1), ring.mark(stream);
    const Mark end = ring.mark(stream);
    CHECK(ring.elapsed_s(begin, end) == 5);
    ring.release_below(unsettled);  // one iteration late
    unsettled = first;
  }
  CHECK(ring.events() == 32);
  CHECK(device.events_made() == 32);
}

TEST_CASE("growing keeps every mark in use") {
  FakeDevice device;
  EventRing ring(device, 3);
  const StreamHandle stream = device.make_stream();
  ring.mark(stream), ring.mark(stream);
  ring.release_below(2);
  std::vector<Mark> marks;
  for (int i = 0; i < 20; ++i) {
    device.work(stream, 1);
    marks.push_back(ring.mark(stream));
  }
  for (std::size_t i = 1; i < marks.size(); ++i)
    CHECK(ring.elapsed_s(marks[i - 1], marks[i]) == 1);
}

TEST_CASE("a mark that was released, or never made, is refused") {
  FakeDevice device;
  EventRing ring(device);
  const StreamHandle stream = device.make_stream();
  const Mark mark = ring.mark(stream);
  ring.release_below(ring.next_ticket());
  error_text(ExitCode::kInternal, [&] { ring.happened(mark); });
  error_text(ExitCode::kInternal, [&] { ring.happened(Mark{}); });
  error_text(ExitCode::kInternal, [&] { ring.happened(Mark{99}); });
}

namespace {

void check_refused(const char* what, const std::function<void()>& body) {
  CHECK(contains(error_text(ExitCode::kInternal, body), what));
}

}  // namespace

TEST_CASE("the stand-in device runs a kernel only where its device is the current one") {
  using Use = FakeDevice::Use;
  FakeDevice device;
  const StreamHandle stream = device.make_stream();
  float values[4] = {};
  FakeDevice::launch(stream, values, sizeof values, Use::kWrite);
  std::thread([&] {
    check_refused("invalid resource handle",
                  [&] { FakeDevice::launch(stream, values, sizeof values, Use::kWrite); });
    device.use_in_this_thread();
    FakeDevice::launch(stream, values, sizeof values, Use::kWrite);
  }).join();
  const FakeDevice other(0, 2);  // as a runtime does, it becomes the current one
  check_refused("invalid resource handle",
                [&] { FakeDevice::launch(stream, values, sizeof values, Use::kRead); });
}

TEST_CASE("the stand-in device refuses streams and events of another device, and freed ones") {
  FakeDevice device, other;
  const StreamHandle stream = device.make_stream(), freed = device.make_stream();
  const EventHandle event = device.make_event();
  check_refused("of another device", [&] { other.record(event, stream); });
  check_refused("of another device", [&] { device.record(other.make_event(), stream); });
  device.free_stream(freed);
  check_refused("was freed", [&] { device.record(event, freed); });
  device.free_event(event);
  check_refused("was freed", [&] { device.wait_for(event); });
}

TEST_CASE("the stand-in device sees the use of freed memory") {
  FakeDevice device;
  const StreamHandle stream = device.make_stream();
  PinnedBuffer buffer(device);
  auto* here = static_cast<char*>(buffer.at_least(8));
  char there[16] = {};
  device.copy(there, here, 8, stream);
  buffer.at_least(16);
  check_refused("memory that was freed", [&] { device.copy(there, here + 4, 4, stream); });
  CHECK(device.blocks() == 1);
}

TEST_CASE("the stand-in device sees two streams use memory in no order") {
  using Use = FakeDevice::Use;
  FakeDevice device;
  const StreamHandle one = device.make_stream(), other = device.make_stream();
  const EventHandle event = device.make_event();
  float values[8] = {};
  FakeDevice::launch(one, values, sizeof values, Use::kWrite);
  const auto read = [&] { FakeDevice::launch(other, values + 4, 8, Use::kRead); };
  check_refused("no event orders the two", read);
  device.record(event, one);
  device.wait(other, event);
  read();
  FakeDevice::launch(one, values, 16, Use::kWrite);  // a part that the other does not read
  check_refused("no event orders the two",
                [&] { FakeDevice::launch(one, values, sizeof values, Use::kWrite); });
  device.record(event, other);
  device.wait_for(event);  // so the host has: what it enqueues comes later
  FakeDevice::launch(one, values, sizeof values, Use::kWrite);
}
