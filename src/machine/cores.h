#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

/// Which logical cores the ranks of a host may use, and whether they take them from each other.
namespace gradsync {

/// Numbers of cores, ascending.
using Cores = std::vector<int>;

/// Cores of a list as the kernel writes it: "0-3,8". Empty for any other text.
Cores cores_in(const std::string& list);

/// A rank that computes with `threads` on any of `cores`.
struct RankCores {
  Cores cores;
  std::size_t threads = 1;
};

/// Ranks that have fewer cores between them than threads.
struct CoreShortage {
  std::size_t ranks = 0, threads = 0, cores = 0;
  bool operator==(const CoreShortage&) const = default;
};

/// Whether ranks of one host are oversubscribed: nothing where every thread of each rank can have a
/// core to itself. If all of them together have too few cores, that is named, else ranks that are
/// bound to too few.
std::optional<CoreShortage> core_shortage(const std::vector<RankCores>& ranks);

/// The ranks of a host that may use a core which rank `mine` may use, itself among them.
std::vector<std::size_t> sharers_of(const std::vector<Cores>& ranks, std::size_t mine);

/// With how many threads rank `mine` computes unless another number is given: its cores over the
/// number of its sharers, at least 1. If all ranks do so, none is short of cores, unless a rank has
/// fewer cores than sharers.
std::size_t fair_threads(const std::vector<Cores>& ranks, std::size_t mine);

}  // namespace gradsync
