// SPDX-License-Identifier: BSD-3-Clause
#include "transport/shared_all_reduce.h"

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "serial/all_reduce_data.h"
#include "stats/clock.h"

using namespace gradsync;
using namespace gradsync::test;

namespace {

constexpr std::size_t kBufferBytes = std::size_t{12} << 20;

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;

std::vector<Memory> parts_of(int ranks, std::size_t bytes) {
  constexpr std::size_t kAlignment = SharedAllReduce::kAlignment;
  std::vector<Memory> parts;
  for (int r = 0; r < ranks; ++r)
    parts.emplace_back(static_cast<std::byte*>(std::aligned_alloc(
                           kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)),
                       &std::free);
  return parts;
}

std::vector<std::byte*> addresses(const std::vector<Memory>& parts) {
  std::vector<std::byte*> all;
  for (const Memory& part : parts)
    all.push_back(part.get());
  return all;
}

/// Ranks as threads, each with a header and a buffer that the others see.
class Team {
 public:
  explicit Team(int ranks)
      : ranks_(ranks),
        start_(ranks),
        headers_(parts_of(ranks, SharedAllReduce::header_bytes())),
        buffers_(parts_of(ranks, kBufferBytes)) {}

  /// `body(reducer, rank, buffer)` on every rank; returns how often it said false.
  int run(const std::function<bool(SharedAllReduce&, int, std::byte*)>& body) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([&, rank] {
        SharedAllReduce reducer(addresses(headers_), rank);
        reducer.add_region(addresses(buffers_), kBufferBytes);
        start_.arrive_and_wait();
        if (!body(reducer, rank, buffers_[static_cast<std::size_t>(rank)].get())) ++wrong;
      });
    for (std::thread& thread : threads)
      thread.join();
    return wrong;
  }

 private:
  int ranks_;
  std::barrier<> start_;
  std::vector<Memory> headers_, buffers_;
};

/// One case, drawn alike on all ranks but for where each rank's data lies.
template <typename T>
bool check_case(SharedAllReduce& reducer, int rank, int ranks, std::byte* buffer,
                std::uint64_t seed, std::size_t count) {
  std::mt19937_64 own(seed * 64 + static_cast<std::uint64_t>(rank));
  const bool inside = seed % 3 != 0;
  const std::size_t shift = own() % 64;
  std::vector<T> outside(inside ? 0 : count + shift);
  T* base = inside ? reinterpret_cast<T*>(buffer) : outside.data();
  const std::span<T> data(base + shift, count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = entry<T>(seed, rank, i);
  const double factor = seed % 2 == 0 ? 1.0 : 1.0 / ranks;
  reducer.all_reduce(data, factor, seed % 5 == 0 ? Waiting::kSleep : Waiting::kSpin);
  return right<T>(data, seed, ranks, factor);
}

}  // namespace

TEST_CASE("shared all-reduce: random sizes, types, places and alignments on 1 to 8 ranks") {
  constexpr int kCases = 1250;  // for each number of ranks
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    const int wrong = Team(ranks).run([&](SharedAllReduce& reducer, int rank, std::byte* buffer) {
      std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
      bool all = true;
      for (int i = 0; i < kCases; ++i) {
        const std::uint64_t seed = random();
        const std::size_t count = random_count(random);
        switch (seed / 7 % 3) {
          case 0:
            all &= check_case<float>(reducer, rank, ranks, buffer, seed, count);
            break;
          case 1:
            all &= check_case<Bfloat16>(reducer, rank, ranks, buffer, seed, count);
            break;
          default:
            all &= check_case<Float16>(reducer, rank, ranks, buffer, seed, count);
            break;
        }
      }
      return all;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("shared all-reduce: all ranks hold equal bits, whatever the path") {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 3001;
  std::vector<std::vector<float>> inside(kRanks), outside(kRanks), small(kRanks);
  Team(kRanks).run([&](SharedAllReduce& reducer, int rank, std::byte* buffer) {
    const auto at = static_cast<std::size_t>(rank);
    const std::span<float> mine(reinterpret_cast<float*>(buffer), kCount);
    outside[at].resize(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      mine[i] = outside[at][i] = entry<float>(1, rank, i);
    small[at].assign(mine.begin(), mine.begin() + 500);
    reducer.all_reduce(mine, 0.2, Waiting::kSpin);
    reducer.all_reduce(std::span(outside[at]), 0.2, Waiting::kSpin);
    reducer.all_reduce(std::span(small[at]), 0.2, Waiting::kSpin);
    inside[at].assign(mine.begin(), mine.end());
    return true;
  });
  for (std::size_t r = 0; r < kRanks; ++r) {
    CHECK(inside[r] == inside[0]);
    CHECK(outside[r] == inside[0]);
    CHECK(small[r] == std::vector<float>(inside[0].begin(), inside[0].begin() + 500));
  }
}

TEST_CASE("shared all-reduce: posted buckets are reduced by progress alone, in any number") {
  constexpr int kRanks = 3, kBuckets = 200;
  constexpr std::size_t kCount = 5'000;
  const int wrong = Team(kRanks).run([&](SharedAllReduce& reducer, int rank, std::byte* buffer) {
    auto* values = reinterpret_cast<float*>(buffer);
    std::uint32_t last = 0;
    for (std::size_t b = 0; b < kBuckets; ++b) {
      const std::span<float> bucket(values + b * kCount, kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        bucket[i] = entry<float>(b, rank, i);
      last = reducer.post(bucket, 1.0 / kRanks);
      reducer.progress();
    }
    while (reducer.finished() != last) {
      reducer.progress();
      std::this_thread::yield();
    }
    bool all = true;
    for (std::size_t b = 0; b < kBuckets; ++b)
      all &= right(std::span<const float>(values + b * kCount, kCount), b, kRanks, 1.0 / kRanks);
    return all;
  });
  CHECK(wrong == 0);
}

TEST_CASE(
    "shared all-reduce: a reduce-scatter leaves each rank its sum, an all-gather all of them") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    CAPTURE(ranks);
    const auto n = static_cast<std::size_t>(ranks);
    const int wrong = Team(ranks).run([&](SharedAllReduce& reducer, int rank, std::byte* buffer) {
      bool all = true;
      for (const std::size_t part : {std::size_t{1}, std::size_t{77}, std::size_t{40'000}}) {
        const std::span<float> data(reinterpret_cast<float*>(buffer), n * part);
        std::vector<float> before(data.size());
        for (std::size_t i = 0; i < data.size(); ++i)
          before[i] = data[i] = entry<float>(part, rank, i);
        reducer.finish(reducer.post(data, 1, /*timed=*/true, CollectiveKind::kReduceScatter),
                       Waiting::kSpin);
        const std::size_t own = static_cast<std::size_t>(rank) * part;
        for (std::size_t i = 0; i < data.size(); ++i) {
          if (i >= own && i < own + part) continue;
          all &= data[i] == before[i];
          data[i] = -1;
        }
        reducer.finish(reducer.post(data, 1, /*timed=*/true, CollectiveKind::kAllGather),
                       Waiting::kSleep);
        all &= right(std::span<const float>(data), part, ranks, 1);
      }
      return all;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("a shared counter wakes those who sleep on it, also across its wrap") {
  SharedCounter counter;
  const std::uint32_t before_wrap = 0xfffffffeu, after_wrap = 1;
  counter.raise_to(before_wrap);
  CHECK(counter.reached(before_wrap));
  CHECK_FALSE(counter.reached(after_wrap));
  SpinBudget budget;
  std::thread sleeper([&] { counter.wait_for(after_wrap, Waiting::kSleep, budget); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  counter.raise_to(after_wrap);
  sleeper.join();
  CHECK(counter.reached(after_wrap));
}

TEST_CASE("the time to spin follows what waiting needed, not that it ended") {
  SpinBudget budget;
  const auto spins = [&] { return budget.spins(Waiting::kSpin); };
  const int most = spins();
  budget.wasted();
  const int half = spins();
  CHECK(half == most / 2);
  budget.paid(1);
  CHECK(spins() == half);
  budget.paid(half - 1);
  CHECK(spins() == most);
  for (int i = 0; i < 100; ++i) {
    budget.wasted();
    budget.paid(0);
  }
  CHECK(spins() >= 1);
  CHECK(spins() < 10);
  CHECK(SpinBudget().spins(Waiting::kSleep) < most);
}

TEST_CASE("shared all-reduce: when the parts of what was posted were done, also after many more") {
  constexpr int kRanks = 3;
  constexpr std::uint32_t kRounds = 300;
  std::vector<std::atomic<double>> came_s(kRounds);  // the last rank to the sum
  const int wrong = Team(kRanks).run([&](SharedAllReduce& reducer, int rank, std::byte* buffer) {
    const std::span<float> values(reinterpret_cast<float*>(buffer), 1000);
    bool all = true;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const std::uint32_t number = reducer.post(values, 1.0 / kRanks, /*timed=*/true);
      if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(5 * rank));
      if (rank == kRanks - 1) came_s[round] = now_s();
      const double mine_s = now_s();
      reducer.finish(number, Waiting::kSleep);
      const auto [own, last] = reducer.times(number);
      all &= mine_s <= own.begin_s && own.begin_s <= own.end_s && own.end_s <= last.end_s;
      all &= own.begin_s <= last.begin_s && last.begin_s <= last.end_s && last.end_s <= now_s();
      all &= came_s[round] <= last.begin_s;
    }
    return all;
  });
  CHECK(wrong == 0);
}
