#include "device/event_ring.h"

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
