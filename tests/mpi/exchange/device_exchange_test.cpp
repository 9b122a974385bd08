// SPDX-License-Identifier: BSD-3-Clause
// The exchange on a device, with a device that is none: order, times, and who waits for whom.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include "machine/kernels.h"
#include "mpi/device_ranks.h"

using namespace gradsync;
using gradsync::test::DeviceRanks;

namespace {

std::atomic<int> watched_waits{0};

}  // namespace

/// Called by the watchdog at every phase.
extern "C" void gradsync_enters(const char* phase) {
  if (std::string_view(phase) == "collective") ++watched_waits;
}

namespace {

/// Whether `body` is still under way after 0.3 s, in a copy of this process.
bool never_returns(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
    }
    _exit(0);
  }
  int status = 0;
  for (int look = 0; look < 30; ++look) {
    if (waitpid(child, &status, WNOHANG) == child) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

std::vector<float> filled(std::size_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((rank + 1) * (static_cast<int>(i % 13) + 1));
  return values;
}

/// Σ over ranks of (rank + 1).
float weights(int ranks) {
  const int sum = ranks * (ranks + 1) / 2;
  return static_cast<float>(sum);
}

Collective narrow_mean(std::span<float> data, ValueType wire) {
  Collective mean = Collective::all_reduce(data, Scale::kAverage);
  mean.wire = wire;
  return mean;
}

void check_all_kinds(bool nccl) {
  DeviceRanks ranks(nccl);
  const int root = ranks.size - 1;
  const std::vector<float> mine = filled(1000, ranks.rank), one = filled(1000, 0);
  ranks.exchange.log().begin_iteration(0);
  auto mean = mine, sum = mine, to_root = mine, from_root = mine;
  ranks.exchange.run(Collective::all_reduce(mean, Scale::kAverage), Traffic::kGradients);
  ranks.exchange.run(Collective::all_reduce(sum, Scale::kSum), Traffic::kGradients);
  ranks.exchange.run(Collective::reduce(to_root, root), Traffic::kGradients);
  ranks.exchange.run(Collective::broadcast(std::span(from_root), root), Traffic::kBuffers);
  std::vector<float> all(ranks.rank == root ? 1000 * static_cast<std::size_t>(ranks.size) : 0);
  ranks.exchange.run(Collective::gather(mine, all, root), Traffic::kInputs);
  std::vector<float> back(1000);
  ranks.exchange.run(Collective::scatter(all, back, root), Traffic::kInputs);
  for (std::size_t i = 0; i < 1000; ++i) {
    CHECK(mean[i] ==
          doctest::Approx(one[i] * weights(ranks.size) / static_cast<float>(ranks.size)));
    CHECK(sum[i] == one[i] * weights(ranks.size));
    CHECK(to_root[i] == (ranks.rank == root ? sum[i] : mine[i]));
    CHECK(from_root[i] == one[i] * static_cast<float>(root + 1));
    CHECK(back[i] == mine[i]);
  }
  CHECK(ranks.exchange.log().records().size() == 6);
}

}  // namespace

TEST_CASE("device: every collective over NCCL and over MPI through the host's memory") {
  check_all_kinds(/*nccl=*/true);
  check_all_kinds(/*nccl=*/false);
}

TEST_CASE("device: an MPI that takes the device's memory is tried before it is trusted") {
  DeviceRanks ranks(/*nccl=*/false);
  CHECK(device_memory_arrives(test::session(), ranks.device, ranks.lane.communication));
  DirectTransport direct(ranks.mpi, ranks.device, ranks.lane.communication,
                         test::scale_on_stand_in);
  const std::vector<float> mine = filled(1000, ranks.rank), one = filled(1000, 0);
  auto mean = mine, staged = mine;
  ranks.device.work(ranks.lane.communication, 2);
  direct.run(Collective::all_reduce(mean, Scale::kAverage, Waiting::kSleep));
  CHECK(ranks.device.now_s() >= 2);  // not before the stream had come to it
  ranks.transport->run(Collective::all_reduce(staged, Scale::kAverage));
  CHECK(mean == staged);
  const std::size_t blocks = ranks.device.blocks();
  for (const int root : {0, ranks.size - 1}) {
    auto root_only = mine;
    direct.run(Collective::reduce(root_only, root));
    CHECK(root_only[1] == (ranks.rank == root ? one[1] * weights(ranks.size) : mine[1]));
    // MPI copies the data of another root than 0 on the host: it gets page-locked memory.
    CHECK((ranks.device.blocks() > blocks) == (root != 0));
  }
}

TEST_CASE("device: a collective is entered in the log that its message names") {
  DeviceRanks ranks(/*nccl=*/true);
  ranks.exchange.log().begin_iteration(0);
  std::vector<float> data(100, 1);
  const auto own = std::make_shared<IterationLog>();
  Message message{Collective::all_reduce(data, Scale::kSum), Traffic::kGradients};
  message.log = own;
  ranks.exchange.finish(ranks.exchange.start(message, ranks.exchange.now()));
  CHECK(own->records.size() == 1);
  CHECK(ranks.exchange.log().records().empty());
}

TEST_CASE("device: halves travel as they do from the host") {
  for (const bool nccl : {true, false}) {
    DeviceRanks ranks(nccl);
    test::Ranks host;
    for (const ValueType type : {ValueType::kBfloat16, ValueType::kFloat16}) {
      auto here = filled(999, ranks.rank), there = here;
      ranks.exchange.run(narrow_mean(here, type), Traffic::kGradients);
      host.exchange.run(narrow_mean(there, type), Traffic::kGradients);
      CHECK(here == there);
    }
  }
}

TEST_CASE("device: all ranks join by the root's id, and leave together") {
  int left = 0;
  NcclId id{};
  {
    DeviceRanks ranks(/*nccl=*/true);
    id = ranks.api.joined;
    ranks.transport.reset();
    left = ranks.api.left;
    CHECK(ranks.api.aborted == 0);
  }
  CHECK(left == 1);
  CHECK(id[1] == 1);
  CHECK(id[0] == 0);
}

TEST_CASE("device: an abort ends the communicator once, without the others") {
  DeviceRanks ranks(/*nccl=*/true);
  CHECK(ranks.transport->lost().empty());
  ranks.api.why_lost = "NCCL: remote process exited";
  CHECK(ranks.transport->lost() == "NCCL: remote process exited");
  ranks.transport->abandon();
  ranks.transport->abandon();
  CHECK(ranks.api.aborted == 1);
  CHECK(ranks.transport->lost().empty());
  ranks.transport.reset();
  CHECK(ranks.api.left == 0);
}

TEST_CASE("device: compute waits for a collective at once, and the host for nothing") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto data = filled(8, ranks.rank);
  ranks.device.work(ranks.lane.compute, 5);
  ranks.exchange.log().begin_iteration(0);
  ranks.exchange.run(Collective::all_reduce(data, Scale::kAverage), Traffic::kGradients);
  const CollectiveRecord& record = ranks.exchange.log().records().at(0);
  CHECK(ranks.device.end_of(ranks.lane.compute) == doctest::Approx(5 + ranks.call_s));
  CHECK(ranks.device.now_s() == 0);
  CHECK(ranks.device.host_waits() == 0);
  CHECK(ranks.ring.elapsed_s(record.ready, record.start) == 0);
  CHECK(ranks.ring.elapsed_s(record.start, record.end) == doctest::Approx(ranks.call_s));
}

TEST_CASE("device: a collective with a moment of its own runs beside compute until joined") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto first = filled(8, ranks.rank), second = first;
  ranks.exchange.log().begin_iteration(0);
  ranks.device.work(ranks.lane.compute, 1);
  const Moment begin = ranks.exchange.now();
  ranks.exchange.start({Collective::all_reduce(first, Scale::kAverage)}, begin);
  ranks.device.work(ranks.lane.compute, 1);
  ranks.exchange.start({Collective::all_reduce(second, Scale::kAverage)}, ranks.exchange.now());
  CHECK(ranks.device.end_of(ranks.lane.compute) == 2);
  ranks.device.work(ranks.lane.compute, ranks.call_s / 2);
  ranks.exchange.finish();
  CHECK(ranks.device.end_of(ranks.lane.compute) == doctest::Approx(2 + ranks.call_s));
  const auto& records = ranks.exchange.log().records();
  CHECK(ranks.ring.elapsed_s(begin.mark, records.at(0).end) == doctest::Approx(ranks.call_s));
  CHECK(ranks.ring.elapsed_s(begin.mark, records.at(1).start) == doctest::Approx(1));
}

TEST_CASE("device: ranks compare a call only when no collective is under way") {
  for (const VerifyLevel verify : {VerifyLevel::kAll, VerifyLevel::kOff}) {
    DeviceRanks ranks(/*nccl=*/true, verify);
    auto data = filled(8, ranks.rank);
    ranks.exchange.log().begin_iteration(7);
    ranks.exchange.start({Collective::all_reduce(data, Scale::kAverage)}, ranks.exchange.now());
    CHECK(ranks.device.now_s() < test::kCall_s);
    ranks.exchange.start({Collective::all_reduce(data, Scale::kAverage)}, ranks.exchange.now());
    const bool waited = ranks.device.now_s() >= test::kCall_s;
    CHECK(waited == (verify == VerifyLevel::kAll && ranks.size > 1));
    CHECK(ranks.device.host_waits() == 0);
  }
}

TEST_CASE("device: through the host's memory the host waits for each copy") {
  DeviceRanks ranks(/*nccl=*/false, VerifyLevel::kOff);
  auto data = filled(8, ranks.rank);
  ranks.device.work(ranks.lane.compute, 5);
  ranks.exchange.run(Collective::all_reduce(data, Scale::kAverage), Traffic::kGradients);
  CHECK(ranks.device.now_s() == 5);
  CHECK(ranks.device.host_waits() > 0);
}

TEST_CASE("device: gradients are looked at before they travel, and nothing else is") {
  DeviceRanks ranks(/*nccl=*/true);
  std::size_t looked = 0;
  ranks.exchange.set_gradient_check([&](std::span<const float> values, StreamHandle stream) {
    CHECK(stream == ranks.lane.communication);
    looked += values.size();
  });
  auto data = filled(8, ranks.rank);
  ranks.exchange.run(Collective::all_reduce(data, Scale::kAverage), Traffic::kGradients);
  ranks.exchange.run(Collective::broadcast(std::span(data), 0), Traffic::kParameters);
  CHECK(looked == 8);
}

TEST_CASE("device: a thread that communicates has its rank's device as the current one") {
  for (const bool nccl : {true, false}) {
    DeviceRanks ranks(nccl);
    auto data = filled(8, ranks.rank);
    int before = -1, after = -1;
    std::string failed;
    std::thread([&] {
      before = test::FakeDevice::current();
      try {
        ranks.exchange.run(narrow_mean(data, ValueType::kBfloat16), Traffic::kGradients);
      } catch (const std::exception& error) {
        failed = error.what();
      }
      after = test::FakeDevice::current();
    }).join();
    CHECK(before == 0);
    CHECK(after == test::FakeDevice::current());
    CHECK(failed == "");
  }
}

TEST_CASE("device: a collective follows what compute did before, and precedes what it does after") {
  using Use = test::FakeDevice::Use;
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto first = filled(8, ranks.rank), second = first;
  const auto compute = [&](std::vector<float>& data) {
    test::FakeDevice::launch(ranks.lane.compute, data.data(), 32, Use::kWrite);
  };
  compute(first);
  ranks.exchange.run(Collective::all_reduce(first, Scale::kAverage), Traffic::kGradients);
  compute(first);
  compute(second);
  ranks.exchange.start({Collective::all_reduce(second, Scale::kAverage)}, ranks.exchange.now());
  compute(first);  // beside it
  if (ranks.size > 1) CHECK_THROWS_AS(compute(second), Error);
  ranks.exchange.finish();
  compute(second);
}

TEST_CASE("device: compute waits for one message that a thread has moved" * test::several_ranks()) {
  using Use = test::FakeDevice::Use;
  DeviceRanks ranks(/*nccl=*/false, VerifyLevel::kOff);
  ranks.exchange.set_overlaps(true);
  auto first = filled(8, ranks.rank), second = first;
  ranks.exchange.log().begin_iteration(0);
  const auto number =
      ranks.exchange.start({Collective::all_reduce(first, Scale::kAverage)}, ranks.exchange.now());
  ranks.exchange.start({Collective::all_reduce(second, Scale::kAverage)}, ranks.exchange.now());
  ranks.exchange.finish(number);
  test::FakeDevice::launch(ranks.lane.compute, first.data(), 32, Use::kWrite);
  ranks.exchange.finish();
  test::FakeDevice::launch(ranks.lane.compute, second.data(), 32, Use::kWrite);
}

TEST_CASE("device: of one rank NCCL enqueues no kernel" * test::once()) {
  DeviceRanks ranks(/*nccl=*/true);
  const std::vector<float> before = filled(9, 0);
  auto data = before;
  ranks.exchange.run(Collective::all_reduce(data, Scale::kAverage), Traffic::kGradients);
  ranks.exchange.run(Collective::all_reduce(data, Scale::kSum), Traffic::kGradients);
  ranks.exchange.run(narrow_mean(data, ValueType::kBfloat16), Traffic::kGradients);
  ranks.exchange.run(Collective::reduce(data, 0), Traffic::kGradients);
  ranks.exchange.run(Collective::broadcast(std::span(data), 0), Traffic::kParameters);
  CHECK(data == before);
  CHECK(ranks.api.calls == 0);
  CHECK(ranks.exchange.log().records().size() == 5);
}

TEST_CASE("device: a collective that is not timed records no event for its start") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto data = filled(8, ranks.rank);
  const auto records = [&](bool timing) {
    ranks.exchange.log().set_timing(timing);
    const std::size_t before = ranks.device.records();
    ranks.exchange.run(Collective::all_reduce(data, Scale::kAverage), Traffic::kGradients);
    return ranks.device.records() - before;
  };
  CHECK(records(true) == 3);
  CHECK(records(false) == 2);
}

TEST_CASE("device: after an abort no result is believed, and NCCL is called no more") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto data = filled(8, ranks.rank);
  ranks.device.work(ranks.lane.compute, 1);
  const Mark ahead = ranks.exchange.now().mark;
  ranks.transport->abandon();
  CHECK(ranks.ring.happened(ahead));  // the kernels before it were ended
  CHECK(never_returns([&] { ranks.exchange.await(ahead); }));
  CHECK(never_returns([&] { await_device(ranks.ring, ahead, *ranks.transport, test::session()); }));
  if (ranks.size > 1)
    CHECK(never_returns([&] { ranks.transport->run(Collective::all_reduce(data, Scale::kSum)); }));
  CHECK(never_returns([&] { ranks.transport->run(Collective::gather(data, data, 0)); }));
}

TEST_CASE("device: over MPI, which loses no rank by itself, an event is waited for") {
  DeviceRanks ranks(/*nccl=*/false);
  ranks.device.work(ranks.lane.compute, 1e-3);
  const Mark ahead = ranks.exchange.now().mark;
  await_device(ranks.ring, ahead, *ranks.transport, test::session());
  CHECK(ranks.ring.happened(ahead));
}

TEST_CASE("watchdog: a collective counts whatever another thread is in, and none inside it") {
  Watchdog& watchdog = test::session().watchdog();
  const auto counted = [&](const std::function<void()>& inner) {
    const int before = watched_waits;
    const CollectiveScope outer(watchdog, CollectiveKind::kBarrier);
    inner();
    return watched_waits - before;
  };
  const auto collective = [&] { const CollectiveScope scope(watchdog, CollectiveKind::kReduce); };
  CHECK(counted([] {}) == 1);
  CHECK(counted(collective) == 1);
  CHECK(counted([&] { std::thread(collective).join(); }) == 2);
}

TEST_CASE("device: the watchdog sees a rank that leaves NCCL") {
  DeviceRanks ranks(/*nccl=*/true);
  const int before = watched_waits;
  ranks.transport.reset();
  CHECK(ranks.api.left == 1);
  CHECK(watched_waits > before);
}
