// The exchange on a device, with a device that is none: order, times, and who waits for whom.
#include <doctest/doctest.h>

#include "kernels/scale.h"
#include "mpi/device_ranks.h"
#include "transport/direct_transport.h"

using namespace gradsync;
using gradsync::test::DeviceRanks;

namespace {

constexpr double kCall_s = 1e-3;  ///< of DeviceRanks' NCCL

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

void check_all_kinds(bool nccl) {
  DeviceRanks ranks(nccl);
  const int root = ranks.size - 1;
  const std::vector<float> mine = filled(1000, ranks.rank), one = filled(1000, 0);
  ranks.exchange.log().begin_iteration(0);
  auto mean = mine, sum = mine, to_root = mine, from_root = mine;
  ranks.exchange.all_reduce_mean(mean, Traffic::kGradients);
  ranks.exchange.all_reduce_sum(sum, Traffic::kGradients);
  ranks.exchange.reduce_sum(to_root, root, Traffic::kGradients);
  ranks.exchange.broadcast(std::span(from_root), root, Traffic::kBuffers);
  std::vector<float> all(ranks.rank == root ? 1000 * static_cast<std::size_t>(ranks.size) : 0);
  ranks.exchange.gather(mine, all, root, Traffic::kInputs);
  std::vector<float> back(1000);
  ranks.exchange.scatter(all, back, root, Traffic::kInputs);
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
                         [](float* values, std::int64_t count, float factor, StreamHandle) {
                           scale_on_host({values, static_cast<std::size_t>(count)}, factor);
                         });
  const std::vector<float> mine = filled(1000, ranks.rank), one = filled(1000, 0);
  auto mean = mine, staged = mine;
  ranks.device.work(ranks.lane.communication, 2);
  direct.all_reduce_mean(mean, Waiting::kSleep);
  CHECK(ranks.device.now_s() >= 2);  // not before the stream had come to it
  ranks.transport->all_reduce_mean(staged, Waiting::kSpin);
  CHECK(mean == staged);
  auto root_only = mine;
  direct.reduce_sum(root_only, 0);
  CHECK(root_only[1] == (ranks.rank == 0 ? one[1] * weights(ranks.size) : mine[1]));
}

TEST_CASE("device: halves travel as they do from the host") {
  for (const bool nccl : {true, false}) {
    DeviceRanks ranks(nccl);
    test::Ranks host;
    for (const ValueType type : {ValueType::kBfloat16, ValueType::kFloat16}) {
      auto here = filled(999, ranks.rank), there = here;
      std::vector<std::uint16_t> wire(here.size());
      ranks.exchange.all_reduce_mean_half(here, wire, type, Traffic::kGradients);
      host.exchange.all_reduce_mean_half(there, wire, type, Traffic::kGradients);
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
  CHECK(ranks.transport->device_queue()->lost().empty());
  ranks.api.why_lost = "NCCL: remote process exited";
  CHECK(ranks.transport->device_queue()->lost() == "NCCL: remote process exited");
  ranks.transport->device_queue()->abandon();
  ranks.transport->device_queue()->abandon();
  CHECK(ranks.api.aborted == 1);
  CHECK(ranks.transport->device_queue()->lost().empty());
  ranks.transport.reset();
  CHECK(ranks.api.left == 0);
}

TEST_CASE("device: compute waits for a collective at once, and the host for nothing") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto data = filled(8, ranks.rank);
  ranks.device.work(ranks.lane.compute, 5);
  ranks.exchange.log().begin_iteration(0);
  ranks.exchange.all_reduce_mean(data, Traffic::kGradients);
  const CollectiveRecord& record = ranks.exchange.log().records().at(0);
  CHECK(ranks.device.end_of(ranks.lane.compute) == doctest::Approx(5 + kCall_s));
  CHECK(ranks.device.now_s() == 0);
  CHECK(ranks.device.host_waits() == 0);
  CHECK(ranks.ring.elapsed_s(record.ready, record.start) == 0);
  CHECK(ranks.ring.elapsed_s(record.start, record.end) == doctest::Approx(kCall_s));
}

TEST_CASE("device: a collective with a moment of its own runs beside compute until joined") {
  DeviceRanks ranks(/*nccl=*/true, VerifyLevel::kOff);
  auto first = filled(8, ranks.rank), second = first;
  ranks.exchange.log().begin_iteration(0);
  ranks.device.work(ranks.lane.compute, 1);
  const Moment begin = ranks.exchange.now();
  ranks.exchange.all_reduce_mean(first, Traffic::kGradients, begin);
  ranks.device.work(ranks.lane.compute, 1);
  ranks.exchange.all_reduce_mean(second, Traffic::kGradients, ranks.exchange.now());
  CHECK(ranks.device.end_of(ranks.lane.compute) == 2);
  ranks.device.work(ranks.lane.compute, 5e-4);
  ranks.exchange.join();
  CHECK(ranks.device.end_of(ranks.lane.compute) == doctest::Approx(2 + kCall_s));
  const auto& records = ranks.exchange.log().records();
  CHECK(ranks.ring.elapsed_s(begin.mark, records.at(0).end) == doctest::Approx(kCall_s));
  CHECK(ranks.ring.elapsed_s(begin.mark, records.at(1).start) == doctest::Approx(1));
}

TEST_CASE("device: ranks compare a call only when no collective is under way") {
  for (const VerifyLevel verify : {VerifyLevel::kAll, VerifyLevel::kOff}) {
    DeviceRanks ranks(/*nccl=*/true, verify);
    auto data = filled(8, ranks.rank);
    ranks.exchange.log().begin_iteration(7);
    ranks.exchange.all_reduce_mean(data, Traffic::kGradients, ranks.exchange.now());
    CHECK(ranks.device.now_s() < kCall_s);
    ranks.exchange.all_reduce_mean(data, Traffic::kGradients, ranks.exchange.now());
    const bool waited = ranks.device.now_s() >= kCall_s;
    CHECK(waited == (verify == VerifyLevel::kAll && ranks.size > 1));
    CHECK(ranks.device.host_waits() == 0);
  }
}

TEST_CASE("device: through the host's memory the host waits for each copy") {
  DeviceRanks ranks(/*nccl=*/false, VerifyLevel::kOff);
  auto data = filled(8, ranks.rank);
  ranks.device.work(ranks.lane.compute, 5);
  ranks.exchange.all_reduce_mean(data, Traffic::kGradients);
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
  ranks.exchange.all_reduce_mean(data, Traffic::kGradients);
  ranks.exchange.broadcast(std::span(data), 0, Traffic::kParameters);
  CHECK(looked == 8);
}
