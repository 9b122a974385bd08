// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/numbers.h"
#include "comm/places.h"
#include "mpi/ranks.h"
#include "transport/trial_sum.h"

using namespace gradsync;
using gradsync::test::Ranks;

namespace {

std::vector<float> contributions(int rank, std::size_t count) {
  return trial_sum::values(trial_sum::factor_of(rank), count);
}

double exact_mean(int ranks, std::size_t i) {
  return static_cast<double>(trial_sum::value(trial_sum::factor_of_all(ranks), i)) / ranks;
}

}  // namespace

TEST_CASE("all-reduce gives the mean of all ranks, spinning and sleeping, for any count" *
          test::many_ranks()) {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  for (const bool overlaps : {false, true})
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7},
                                    std::size_t{997}, std::size_t{65536}, std::size_t{1000003}}) {
      ranks.exchange.set_overlaps(overlaps);
      auto values = contributions(ranks.rank, count);
      ranks.exchange.run(Collective::all_reduce(values, Scale::kAverage), Traffic::kGradients);
      double worst = 0;
      for (std::size_t i = 0; i < count; ++i)
        worst =
            std::max(worst, std::abs(static_cast<double>(values[i]) - exact_mean(ranks.size, i)));
      CHECK(worst <= 1e-4);
    }
}

TEST_CASE("all-reduce in 16 bits is the mean within their precision" * test::several_ranks()) {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  for (const ValueType type : {ValueType::kBfloat16, ValueType::kFloat16}) {
    auto values = contributions(ranks.rank, 4099);
    Collective mean = Collective::all_reduce(values, Scale::kAverage);
    mean.wire = type;
    ranks.exchange.run(mean, Traffic::kGradients);
    // n roundings of values up to 48n/n·n; bf16 keeps 8 bits, fp16 11.
    const double unit = type == ValueType::kBfloat16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -11);
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(values[i]) - exact_mean(ranks.size, i)));
    CHECK(worst <= 2 * unit * 48 * (ranks.size + 1));
  }
}

TEST_CASE("all-reduce in 16 bits of one rank changes nothing") {
  Ranks ranks;
  if (ranks.size > 1) return;
  ranks.exchange.log().begin_iteration(0);
  std::vector<float> values = {1 + std::ldexp(1.0f, -20), 3e-9f};
  Collective mean = Collective::all_reduce(values, Scale::kAverage);
  mean.wire = ValueType::kBfloat16;
  ranks.exchange.run(mean, Traffic::kGradients);
  CHECK(values == std::vector<float>{1 + std::ldexp(1.0f, -20), 3e-9f});
}

TEST_CASE("rounding to 16 bits is to nearest even and keeps NaN and infinity" * test::once()) {
  CHECK(from_bf16(to_bf16(1.0f)) == 1.0f);
  CHECK(to_bf16(1.00390625f) == 0x3f80);  // half-way between 1 and 1 + 2^-7: to even
  CHECK(to_bf16(1.01171875f) == 0x3f82);  // half-way between 1 + 2^-7 and 1 + 2^-6: to even
  CHECK(std::isnan(from_bf16(to_bf16(std::nanf("")))));
  CHECK(std::isinf(from_bf16(to_bf16(INFINITY))));
  CHECK(from_fp16(to_fp16(65504.0f)) == 65504.0f);
  CHECK(std::isinf(from_fp16(to_fp16(70000.0f))));
}

TEST_CASE("halves of an all-reduce that are posted are there when their number is finished") {
  constexpr std::size_t kPart = 3000, kMessages = 5;
  for (const char* name : {"shm", "mpi", "tcp-ring"}) {
    CAPTURE(name);
    test::Ranks ranks(name);
    Exchange exchange(test::session(), ranks.transport, VerifyLevel::kInit);
    exchange.set_overlaps(true);
    const auto n = static_cast<std::size_t>(exchange.session().size());
    const auto mine = static_cast<std::size_t>(exchange.session().rank());
    const std::size_t count = n * kPart;
    const auto memory = exchange.allocate(kMessages * count * sizeof(float));
    std::vector<float> elsewhere(memory ? 0 : kMessages * count);
    float* values = memory ? reinterpret_cast<float*>(memory.get()) : elsewhere.data();
    const auto data = [&](std::size_t m) { return std::span<float>(values + m * count, count); };
    const auto own = [&](std::size_t m) { return data(m).subspan(mine * kPart, kPart); };
    for (std::size_t m = 0; m < kMessages; ++m)
      std::ranges::fill(data(m), static_cast<float>(m + mine));
    std::vector<std::uint64_t> numbers;
    for (std::size_t m = 0; m < kMessages; ++m)
      numbers.push_back(exchange.start(
          {Collective::reduce_scatter(data(m), own(m), m % 2 == 0 ? Scale::kAverage : Scale::kSum)},
          exchange.now()));
    for (std::size_t m = 0; m < kMessages; ++m) {
      exchange.finish(numbers[m]);
      const std::size_t sum_of_ranks = n * (n - 1) / 2;
      const auto sum = static_cast<float>(n * m + sum_of_ranks);
      const float expected = m % 2 == 0 ? sum * (1.0f / static_cast<float>(n)) : sum;
      CHECK(std::ranges::count(own(m), expected) == kPart);
      std::ranges::fill(own(m), static_cast<float>(mine));
    }
    for (std::size_t m = 0; m < kMessages; ++m)
      numbers[m] = exchange.start(
          {Collective::all_gather(std::as_bytes(own(m)), std::as_writable_bytes(data(m))),
           Traffic::kParameters},
          exchange.now());
    for (std::size_t m = 0; m < kMessages; ++m) {
      exchange.finish(numbers[m]);
      for (std::size_t rank = 0; rank < n; ++rank)
        CHECK(std::ranges::count(data(m).subspan(rank * kPart, kPart), static_cast<float>(rank)) ==
              kPart);
    }
    exchange.finish();
    const auto& records = exchange.log().records();
    REQUIRE(records.size() == 2 * kMessages);
    CHECK(records.front().kind == CollectiveKind::kReduceScatter);
    CHECK(records.back().kind == CollectiveKind::kAllGather);
    CHECK(records.front().posted.has_value() == (std::string_view(name) == "shm"));
  }
}

TEST_CASE("gather and scatter keep the order of the ranks" * test::many_ranks()) {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  const std::vector<float> mine = {static_cast<float>(ranks.rank),
                                   static_cast<float>(10 * ranks.rank)};
  std::vector<float> all(ranks.rank == 0 ? 2 * static_cast<std::size_t>(ranks.size) : 0), back(2);
  ranks.exchange.run(Collective::gather(mine, all, 0), Traffic::kGradients);
  for (std::size_t r = 0; r < all.size() / 2; ++r) {
    CHECK(all[2 * r] == static_cast<float>(r));
    CHECK(all[2 * r + 1] == static_cast<float>(10 * r));
  }
  ranks.exchange.run(Collective::scatter(all, back, 0), Traffic::kGradients);
  CHECK(back == mine);
}

TEST_CASE("broadcast and reduce" * test::many_ranks()) {
  Ranks ranks;
  ranks.exchange.log().begin_iteration(0);
  const int last = ranks.size - 1;
  std::vector<float> values(5, static_cast<float>(ranks.rank));
  ranks.exchange.run(Collective::broadcast(std::span(values), last), Traffic::kParameters);
  CHECK(values == std::vector<float>(5, static_cast<float>(last)));
  std::vector<float> ones(3, 1.0f);
  ranks.exchange.run(Collective::reduce(ones, 0), Traffic::kGradients);
  CHECK(ones[2] == (ranks.rank == 0 ? static_cast<float>(ranks.size) : 1.0f));
}

TEST_CASE("every collective is in the ledger, as often as it ran") {
  Ranks ranks;
  const auto sent = [] {
    return test::session().ledger().total().sent_bytes[static_cast<std::size_t>(
        Traffic::kGradients)];
  };
  std::vector<float> values(1000, 1.0f);
  const std::int64_t before = sent();
  ranks.exchange.log().begin_iteration(0);
  ranks.exchange.run(Collective::all_reduce(values, Scale::kAverage), Traffic::kGradients);
  ranks.exchange.run(Collective::all_reduce(values, Scale::kAverage), Traffic::kGradients);
  CHECK(sent() - before == 2 * (2 * (ranks.size - 1) * 4000 / ranks.size));
}

TEST_CASE("the log of an iteration that somebody keeps is not written to by the next" *
          test::once()) {
  Ranks ranks;
  CollectiveLog& log = ranks.exchange.log();
  log.begin_iteration(3);
  const std::shared_ptr<IterationLog> kept = log.current();
  log.begin_iteration(4);
  CHECK(kept->iteration == 3);
  CHECK(log.current()->iteration == 4);
}

TEST_CASE("every collective is recorded with its own times, and counted by the formulas") {
  Ranks ranks;
  const int n = ranks.size;
  ranks.exchange.log().begin_iteration(3);
  std::vector<float> values(1000, 1.0f),
      all(ranks.rank == 0 ? 1000 * static_cast<std::size_t>(n) : 0);
  ranks.exchange.start({Collective::all_reduce(values, Scale::kAverage)}, Moment{1.5});
  ranks.exchange.finish();
  ranks.exchange.run(Collective::gather(values, all, 0), Traffic::kInputs);
  const auto& records = ranks.exchange.log().records();
  REQUIRE(records.size() == 2);
  CHECK(records[0].kind == CollectiveKind::kAllReduce);
  CHECK(records[0].bytes == 4000);
  CHECK(records[0].ready_s == 1.5);
  CHECK(records[0].start_s <= records[0].end_s);
  CHECK(records[0].end_s <= records[1].start_s);
  const auto& traffic = ranks.exchange.log().traffic();
  CHECK(traffic[static_cast<std::size_t>(Traffic::kGradients)] == 2 * (n - 1) * 4000 / n);
  const std::int64_t gathered = n == 1 ? 0 : ranks.rank == 0 ? (n - 1) * 4000 : 4000;
  CHECK(traffic[static_cast<std::size_t>(Traffic::kInputs)] == gathered);
  ranks.exchange.run(Collective::scatter(all, values, 0), Traffic::kBuffers);
  CHECK(traffic[static_cast<std::size_t>(Traffic::kBuffers)] == gathered);
  ranks.exchange.log().begin_iteration(4);
  CHECK(ranks.exchange.log().records().empty());
  CHECK(ranks.exchange.log().traffic()[0] == 0);
}

TEST_CASE("bytes that are not counted are not known, and not none") {
  Ranks ranks;
  std::vector<float> values(1000, 1.0f);
  ranks.exchange.log().set_timing(false);
  ranks.exchange.log().begin_iteration(0);
  ranks.exchange.run(Collective::all_reduce(values, Scale::kAverage), Traffic::kGradients);
  for (const std::int64_t bytes : ranks.exchange.log().traffic())
    CHECK(bytes == -1);
}

TEST_CASE("fingerprints of calls that differ in anything differ" * test::once()) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.count = 100;
  const auto differs = [&](auto change) {
    CollectiveCall other = call;
    change(other);
    return fingerprint(other) != fingerprint(call);
  };
  CHECK(fingerprint(call) == fingerprint(CollectiveCall(call)));
  CHECK(differs([](CollectiveCall& c) { c.kind = CollectiveKind::kReduce; }));
  CHECK(differs([](CollectiveCall& c) { c.count = 99; }));
  CHECK(differs([](CollectiveCall& c) { c.type = ValueType::kFloat16; }));
  CHECK(differs([](CollectiveCall& c) { c.op = ReduceOp::kSum; }));
  CHECK(differs([](CollectiveCall& c) { c.root = 1; }));
  CHECK(differs([](CollectiveCall& c) { c.iteration = 1; }));
  CHECK(differs([](CollectiveCall& c) { c.mode = 1; }));
}

TEST_CASE("the offset of a clock is that of the middle of the shortest round trip" *
          test::several_ranks()) {
  const int rank = test::session().rank();
  // Rank 0 answers at 100 s; the others' round trips take 10 s and then 4 s of their clocks.
  const std::array<double, 4> times_s = {0, 10, 20, 24};
  std::size_t read = 0;
  const auto clock = [&] { return rank == 0 ? 100 : rank + times_s.at(read++); };
  const ClockOffset offset = measure_clock_offset(test::session(), 2, clock);
  CHECK(offset.offset_s == (rank == 0 ? 0 : 100.0 - (rank + 22)));
  CHECK(offset.uncertainty_s == (rank == 0 ? 0 : 2));
}

TEST_CASE("clocks of one host agree, and say how well" * test::several_ranks()) {
  const ClockOffset clock = measure_clock_offset(test::session());
  constexpr double kTick_s = 1e-6;
  CHECK(clock.uncertainty_s >= 0);
  CHECK(std::abs(clock.offset_s) <= clock.uncertainty_s + kTick_s);
  // Ranks that share a core wait for it, and a message takes as long.
  if (static_cast<unsigned>(test::session().size()) <= std::thread::hardware_concurrency()) {
    double shortest_s = clock.uncertainty_s;  // a message may meet another program on its core
    for (int i = 0; i < 20; ++i)
      shortest_s = std::min(shortest_s, measure_clock_offset(test::session()).uncertainty_s);
    CHECK(shortest_s < 1e-3);
  }
}
