#include "comm/ring_all_reduce.h"

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "serial/all_reduce_data.h"
#include "serial/expect_error.h"
#include "support/file.h"

using namespace gradsync;
using namespace gradsync::test;

namespace {

/// Ranks as threads, joined to a ring by sockets.
class Ring {
 public:
  explicit Ring(int ranks)
      : ranks_(ranks), to_next_(static_cast<std::size_t>(ranks)), from_previous_(to_next_.size()) {
    for (std::size_t r = 0; r < to_next_.size(); ++r) {
      int pair[2];
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
      to_next_[r].reset(pair[0]);
      from_previous_[(r + 1) % to_next_.size()].reset(pair[1]);
    }
  }

  /// `body(reducer, rank)` on every rank; returns how often it said false.
  int run(const std::function<bool(RingAllReduce&, int)>& body) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        RingAllReduce reducer({to_next_[at].get(), from_previous_[at].get(), "next", "previous"},
                              rank, ranks_);
        if (!body(reducer, rank)) ++wrong;
      });
    for (std::thread& thread : threads)
      thread.join();
    return wrong;
  }

  void close(int rank) {
    to_next_[static_cast<std::size_t>(rank)].reset();
    from_previous_[static_cast<std::size_t>(rank)].reset();
  }

 private:
  int ranks_;
  std::vector<UniqueFd> to_next_, from_previous_;
};

/// One case; data of type T that travels as W.
template <typename T, typename W = T>
bool check_case(RingAllReduce& reducer, int rank, int ranks, std::uint64_t seed,
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

}  // namespace

TEST_CASE("ring all-reduce: random sizes, types, wire types and alignments on 1 to 8 ranks") {
  constexpr int kCases = 1250;  // for each number of ranks
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    const int wrong = Ring(ranks).run([&](RingAllReduce& reducer, int rank) {
      std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
      bool all = true;
      for (int i = 0; i < kCases; ++i) {
        const std::uint64_t seed = random();
        const std::size_t count = random_count(random);
        const auto check = [&](auto type, auto wire) {
          return check_case<decltype(type), decltype(wire)>(reducer, rank, ranks, seed, count);
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

TEST_CASE("ring all-reduce: all ranks hold equal bits, also where less precision travels") {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 300'007;
  std::vector<std::vector<float>> whole(kRanks), half(kRanks);
  Ring(kRanks).run([&](RingAllReduce& reducer, int rank) {
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

TEST_CASE("ring all-reduce: a neighbour that leaves is named") {
  Ring ring(3);
  std::atomic<int> named{0};
  ring.run([&](RingAllReduce& reducer, int rank) {
    if (rank == 1) {
      ring.close(1);
      return true;
    }
    std::vector<float> data(1'000'000, 1.0f);
    const std::string text =
        error_text(ExitCode::kHang, [&] { reducer.run(std::span(data), 1.0); });
    if (contains(text, rank == 0 ? "to next" : "to previous")) ++named;
    ring.close(rank);
    return true;
  });
  CHECK(named >= 1);
}
