#include "machine/cores.h"

#include <random>
#include <set>

#include <doctest/doctest.h>

namespace gradsync {
namespace {

std::vector<Cores> masks(const std::vector<std::string>& lists) {
  std::vector<Cores> all;
  for (const std::string& list : lists)
    all.push_back(cores_in(list));
  return all;
}

std::vector<std::size_t> threads_of(const std::vector<std::string>& lists) {
  const auto ranks = masks(lists);
  std::vector<std::size_t> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    threads.push_back(fair_threads(ranks, rank));
  return threads;
}

/// Whether ranks of any subset have more threads than cores: Hall's condition, by all subsets.
bool short_by_subsets(const std::vector<RankCores>& ranks) {
  for (unsigned subset = 1; subset < 1U << ranks.size(); ++subset) {
    std::set<int> cores;
    std::size_t threads = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if ((subset >> rank & 1) != 0) {
        cores.insert(ranks[rank].cores.begin(), ranks[rank].cores.end());
        threads += ranks[rank].threads;
      }
    if (threads > cores.size()) return true;
  }
  return false;
}

using Counts = std::vector<std::size_t>;

}  // namespace

TEST_CASE("cores: lists as the kernel writes them") {
  CHECK(cores_in("0-3,8") == Cores{0, 1, 2, 3, 8});
  CHECK(cores_in("5") == Cores{5});
  for (const char* text : {"", "all", "3-", "0-99999999999", "-1-2", "0,"})
    CHECK_MESSAGE(cores_in(text).empty(), text);
}

TEST_CASE("cores: threads of ranks that share some of a host's cores") {
  CHECK(threads_of({"0-1", "0-1"}) == Counts{1, 1});
  CHECK(threads_of({"0-63", "0-63", "0-63", "0-63"}) == Counts{16, 16, 16, 16});
  // Bound to a socket of two, and to cores of their own.
  CHECK(threads_of({"0-7", "0-7", "8-15", "8-15"}) == Counts{4, 4, 4, 4});
  CHECK(threads_of({"0-7", "8-15"}) == Counts{8, 8});
  // A cpuset whose numbers do not begin at 0, and masks that overlap in part.
  CHECK(threads_of({"40-43", "40-43"}) == Counts{2, 2});
  CHECK(threads_of({"0-3", "3-6", "7"}) == Counts{2, 2, 1});
  CHECK(threads_of({"0", "0", "0"}) == Counts{1, 1, 1});
  CHECK(threads_of({"0-5"}) == Counts{6});
}

TEST_CASE("cores: a shortage is what any ranks of a host have, and names them") {
  const auto shortage = [](const std::vector<std::string>& lists, std::size_t threads) {
    std::vector<RankCores> ranks;
    for (const Cores& cores : masks(lists))
      ranks.push_back({cores, threads});
    return core_shortage(ranks);
  };
  CHECK_FALSE(shortage({}, 1));
  CHECK_FALSE(shortage({"0-1", "0-1"}, 1));
  CHECK_FALSE(shortage({"0", "1", "0-7"}, 1));
  CHECK_FALSE(shortage({"0-7", "0"}, 1));
  CHECK(shortage({"0-1", "0-1"}, 2) == CoreShortage{2, 4, 2});
  CHECK(shortage({"0", "0", "1-7"}, 1) == CoreShortage{2, 2, 1});
  CHECK(shortage({"0-1", "1-2", "4-9"}, 2) == CoreShortage{2, 4, 3});
  CHECK(shortage({"0-1", "1-2", "0,2", "0-2", "5-9"}, 1) == CoreShortage{4, 4, 3});
}

TEST_CASE("cores: a shortage is found where there is one, and fair threads make none") {
  std::mt19937 random(7);
  const auto below = [&](unsigned bound) { return random() % bound; };
  int shortages = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<RankCores> ranks(1 + below(5));
    std::vector<Cores> cores;
    for (RankCores& rank : ranks) {
      std::set<int> mask;
      for (unsigned i = 0; i < 1 + below(6); ++i)
        mask.insert(static_cast<int>(below(9)));
      rank = {Cores(mask.begin(), mask.end()), 1 + below(3)};
      cores.push_back(rank.cores);
    }
    const auto found = core_shortage(ranks);
    REQUIRE(found.has_value() == short_by_subsets(ranks));
    if (found) CHECK(found->threads > found->cores);
    shortages += found ? 1 : 0;
    bool enough = true;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].threads = fair_threads(cores, rank);
      enough &= cores[rank].size() >= sharers_of(cores, rank).size();
    }
    if (enough) REQUIRE_FALSE(core_shortage(ranks));
  }
  CHECK(shortages > 300);
  CHECK(shortages < 2700);
}

}  // namespace gradsync
