#include "transport/ring_all_reduce.h"

#include <array>
#include <barrier>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "serial/all_reduce_data.h"
#include "serial/expect_error.h"
#include "serial/ring_of_threads.h"

using namespace gradsync;
using namespace gradsync::test;

namespace {

/// One case; data of type T that travels as W.
template <typename T, typename W = T>
bool check_ring_case(RingAllReduce& reducer, int rank, int ranks, std::uint64_t seed,
                     std::size_t count) {
  std::vector<T> memory(count + seed % 16);
  const std::span<T> data = std::span(memory).last(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = entry<T>(seed, rank, i);
  const double factor = seed % 2 == 0 ? 1.0 : 1.0 / ranks;
  reducer.run<T, W>(data, factor);
  const double eps = unit_roundoff<T>() + (std::is_same_v<T, W> ? 0 : unit_roundoff<W>());
  return right<T>(data, seed, ranks, factor, eps);
}

/// Random sizes, types, wire types and alignments; `cases` on each number of ranks.
void check_random(int cases, Connection (*make)(RingEdge)) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    const int wrong = RingOfThreads(ranks, make).run([&](RingAllReduce& reducer, int rank) {
      std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
      bool all = true;
      for (int i = 0; i < cases; ++i) {
        const std::uint64_t seed = random();
        const std::size_t count = random_count(random);
        const auto check = [&](auto type, auto wire) {
          return check_ring_case<decltype(type), decltype(wire)>(reducer, rank, ranks, seed, count);
        };
        switch (seed / 7 % 6) {
          case 0:
            all &= check(float(), float());
            break;
          case 1:
            all &= check(float(), Bfloat16());
            break;
          case 2:
            all &= check(float(), Float16());
            break;
          case 3:
            all &= check(double(), double());
            break;
          case 4:
            all &= check(Bfloat16(), Bfloat16());
            break;
          default:
            all &= check(Float16(), Float16());
            break;
        }
      }
      return all;
    });
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("ring all-reduce: random sizes, types, wire types and alignments on 1 to 8 ranks") {
  check_random(1250, socket_pair);
}

TEST_CASE("ring all-reduce: the same over TCP, random cases") {
  check_random(60, connection);
}

TEST_CASE("ring all-reduce: all ranks hold equal bits, also where less precision travels") {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 300'007;
  std::vector<std::vector<float>> whole(kRanks), half(kRanks);
  RingOfThreads(kRanks).run([&](RingAllReduce& reducer, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < kCount; ++i)
      whole[at].push_back(entry<float>(3, rank, i));
    half[at] = whole[at];
    reducer.run(std::span(whole[at]), 0.2);
    reducer.run<float, Bfloat16>(std::span(half[at]), 0.2);
    return true;
  });
  for (std::size_t r = 1; r < kRanks; ++r) {
    CHECK(whole[r] == whole[0]);
    CHECK(half[r] == half[0]);
  }
}

TEST_CASE("ring all-reduce: a neighbor that leaves is named by both that it was joined to") {
  constexpr std::size_t kMoreThanSocketsHold = 30'000'000;
  RingOfThreads ring(3);
  std::barrier both_have_named(2);
  std::array<std::string, 3> named;
  ring.run([&](RingAllReduce& reducer, int rank) {
    if (rank == 1) {
      ring.close(1);
      return true;
    }
    std::vector<float> data(kMoreThanSocketsHold, 1.0f);
    named[static_cast<std::size_t>(rank)] =
        error_text(ExitCode::kHang, [&] { reducer.run(std::span(data), 1.0); });
    both_have_named.arrive_and_wait();  // neither takes the other's end for that of rank 1
    return true;
  });
  CHECK(contains(named[0], "the connection to next is lost"));
  CHECK(contains(named[2], "the connection to previous is lost"));
}
