// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cmath>
#include <thread>

#include <doctest/doctest.h>

#include "calibrate/calibrator.h"
#include "mpi/device_ranks.h"
#include "mpi/ranks.h"

using namespace gradsync;
using namespace gradsync::calibrate;
using gradsync::test::Ranks;

namespace {

/// A transport whose results are wrong in one value on the last rank.
class Corrupting : public Transport {
 public:
  explicit Corrupting(Transport& real)
      : Transport("corrupting", real.rank(), real.size()), real_(real) {}
  double run(const Collective& call) override {
    real_.run(call);
    const bool to_root =
        call.kind == CollectiveKind::kReduce || call.kind == CollectiveKind::kGather;
    // The exponent of a value.
    if (rank() == (to_root ? call.root : size() - 1))
      call.receive[call.receive.size() / 2 + 3] ^= std::byte{0x41};
    return 0;
  }

 private:
  Transport& real_;
};

std::vector<const OperationEntry*> all_operations() {
  std::vector<const OperationEntry*> all;
  for (const OperationEntry& entry : operations())
    all.push_back(&entry);
  return all;
}

std::vector<PlannedCell> cells_of(const std::vector<std::int64_t>& sizes) {
  return plan_cells(all_operations(), kCadences, sizes, {});
}

}  // namespace

TEST_CASE("calibration: every collective, alone and in a stream, has right values and a time") {
  Ranks ranks;
  Calibrator calibrator(test::session(), ranks.transport, ranks.watchdog);
  CallCounts counts;
  counts.timed = 4;
  counts.checked = 2;
  for (const PlannedCell& cell : cells_of({4, 1000, 40000})) {
    const CalibrationRow row = calibrator.measure(cell, counts);
    INFO(cell.operation->name << ' ' << cell.cadence << ' ' << row.bytes);
    CHECK(row.wrong == 0);
    CHECK(row.repetitions == 4);
    CHECK(row.kind == cell.operation->kind);
    CHECK(row.transport == cell.operation->transport);
    CHECK(row.minimum_s > 0);
    CHECK(row.minimum_s <= row.median_s);
    CHECK(row.median_s <= row.maximum_s);
    // The same on all ranks: the largest of the medians is everybody's.
    double largest_s = 0;
    MPI_Allreduce(&row.median_s, &largest_s, 1, MPI_DOUBLE, MPI_MAX, test::session().world());
    CHECK(row.median_s == largest_s);
  }
}

TEST_CASE("calibration: every collective of every type, in one piece and in pieces of 96 bytes") {
  for (const std::size_t piece_bytes : {kPiece_bytes, std::size_t{96}}) {
    Ranks ranks;
    MpiTransport transport(test::session().world(), piece_bytes);
    Calibrator calibrator(test::session(), transport, ranks.watchdog);
    CallCounts counts;
    counts.timed = 3;
    std::vector<ValueType> types;
    for (const DataType& one : kDataTypes)
      types.push_back(one.type);
    for (const PlannedCell& cell : plan_cells(all_operations(), kCadences, {4, 1000}, {}, types)) {
      const CalibrationRow row = calibrator.measure(cell, counts);
      INFO(cell.operation->name << ' ' << row.type << ' ' << cell.cadence << ' ' << row.bytes);
      CHECK(row.wrong == 0);
      CHECK(row.type == name_of(cell.type));
      CHECK(row.p95_s <= row.p99_s);
      CHECK(row.p99_s <= row.maximum_s);
    }
  }
}

TEST_CASE("calibration: of the ranks' times the one that was asked for counts") {
  Ranks ranks;
  Calibrator calibrator(test::session(), ranks.transport, ranks.watchdog);
  CallCounts counts;
  counts.timed = 1;
  counts.warmup = 0;
  /// Takes a hundredth of a second on the root, and a whole one elsewhere.
  class Slow : public Operation {
   public:
    void fill() override {}
    void run(Transport& transport) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(transport.rank() == 0 ? 10 : 1000));
    }
    std::int64_t wrong(int) const override { return 0; }
  };
  const OperationEntry slow = {
      "slow",
      CollectiveKind::kBroadcast,
      "mpi",
      false,
      0,
      true,
      [](const OperationShape&) -> std::unique_ptr<Operation> { return std::make_unique<Slow>(); }};
  const auto time_s = [&](OverRanks over_ranks) {
    counts.over_ranks = over_ranks;
    return calibrator.measure({&slow, kCadences[0], {4, false}}, counts).median_s;
  };
  const int size = test::session().size();
  const double root_s = time_s(OverRanks::kRoot), fastest_s = time_s(OverRanks::kFastest);
  const double slowest_s = time_s(OverRanks::kSlowest), mean_s = time_s(OverRanks::kMean);
  for (const double short_s : {root_s, fastest_s}) {
    CHECK(short_s >= 0.01);
    CHECK(short_s < 0.5);
  }
  CHECK(slowest_s >= (size == 1 ? 0.01 : 1));
  // Another rank may be late by what lies between.
  const double expected_s = (0.01 + 1.0 * (size - 1)) / size;
  CHECK(mean_s >= expected_s);
  CHECK(mean_s < expected_s + 0.4);
}

TEST_CASE("calibration: a stream longer than float32's range stays right") {
  Ranks ranks;
  Calibrator calibrator(test::session(), ranks.transport, ranks.watchdog);
  CallCounts counts;
  counts.timed = 230;  // 2^230 ranks' worth of sums without filling again
  for (const char* name : {"allreduce", "allreduce-ring", "reduce"})
    CHECK(calibrator.measure({&find_operation(name), "back-to-back", {64, false}}, counts).wrong ==
          0);
}

TEST_CASE("calibration: one wrong value on one rank is found in every collective") {
  Ranks ranks;
  Corrupting transport(ranks.transport);
  Calibrator calibrator(test::session(), transport, ranks.watchdog);
  CallCounts counts;
  counts.warmup = 0;
  counts.timed = 1;
  for (const PlannedCell& cell : cells_of({4000})) {
    INFO(cell.operation->name << ' ' << cell.cadence);
    CHECK(calibrator.measure(cell, counts).wrong == 1);
  }
  counts.checked = 0;
  CHECK(calibrator.measure(cells_of({4000})[0], counts).wrong == -1);
}

TEST_CASE("calibration: a budget leaves out calls, never below the fewest") {
  Ranks ranks;
  Calibrator calibrator(test::session(), ranks.transport, ranks.watchdog);
  CallCounts counts;
  counts.timed = 50;
  counts.budget_s = 1e-12;
  const auto cells = cells_of({4000});
  CHECK(calibrator.measure(cells[0], counts).repetitions == kFewestCalls);
  counts.timed = 3;
  CHECK(calibrator.measure(cells[0], counts).repetitions == 3);
}

TEST_CASE("calibration: on a device calls are timed by events, and their values compared") {
  test::DeviceRanks ranks(/*nccl=*/true);
  Calibrator calibrator(test::session(), *ranks.transport, ranks.watchdog, &ranks.lane);
  CallCounts counts;
  counts.timed = 100;
  counts.checked = 2;
  for (const char* name : {"allreduce", "broadcast", "reduce"})
    for (const std::string& cadence : kCadences) {
      const CalibrationRow row =
          calibrator.measure({&find_operation(name), cadence, {4000, false}}, counts);
      CHECK(row.transport == "nccl");
      CHECK(row.wrong == 0);
      CHECK(row.median_s == doctest::Approx(ranks.call_s));
    }
  CHECK(operations_over("nccl", {&find_operation("allreduce"), &find_operation("allreduce-ring")})
            .size() == 1);
}

TEST_CASE("calibration: before values are filled again every call has ended, on all ranks") {
  test::DeviceRanks ranks(/*nccl=*/true);
  Calibrator calibrator(test::session(), *ranks.transport, ranks.watchdog, &ranks.lane);
  CallCounts counts;
  counts.timed = 110;  // on two ranks one fill is for 100
  const PlannedCell cell{&find_operation("allreduce"), "back-to-back", {64, false}};
  CHECK(calibrator.measure(cell, counts).wrong == 0);
  CHECK(ranks.device.host_waits() > 2);
  CHECK(ranks.device.blocked_waits() == 0);
}

TEST_CASE("calibration: from a device every collective of every type has right values") {
  CallCounts counts;
  counts.timed = 2;
  for (const bool nccl : {true, false}) {
    test::DeviceRanks ranks(nccl);
    Calibrator calibrator(test::session(), *ranks.transport, ranks.watchdog, &ranks.lane);
    const std::string way = nccl ? "nccl" : "mpi";
    for (const OperationEntry* entry : operations_over(way, all_operations()))
      for (const DataType& type : kDataTypes) {
        const CalibrationRow row =
            calibrator.measure({entry, kCadences[0], {4000, false}, type.type}, counts);
        INFO(entry->name << ' ' << row.type << ' ' << row.transport);
        CHECK(row.wrong == 0);
        CHECK((row.transport == way || row.transport == kMpiRing));
      }
  }
}
