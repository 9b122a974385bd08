// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "machine/host.h"

namespace gradsync {

namespace {

constexpr std::int64_t kMostCores = 1 << 16;  ///< of a host; a file may say anything

void add_range(const std::string& range, Cores& cores) {
  const std::size_t dash = range.find('-');
  const std::int64_t first = parse_integer(range.substr(0, dash));
  const std::int64_t last = dash == range.npos ? first : parse_integer(range.substr(dash + 1));
  if (first < 0 || last >= kMostCores) throw Error(ExitCode::kBadData, "no cores: " + range);
  for (std::int64_t core = first; core <= last; ++core)
    cores.push_back(static_cast<int>(core));
}

/// Ranks that are bound to the same cores.
struct Group {
  Cores cores;
  std::size_t ranks = 0, threads = 0;
};

std::vector<Group> groups_of(const std::vector<RankCores>& ranks) {
  std::map<Cores, Group> by_cores;
  for (const RankCores& rank : ranks) {
    Group& group = by_cores.try_emplace(rank.cores, Group{rank.cores}).first->second;
    ++group.ranks;
    group.threads += rank.threads;
  }
  std::vector<Group> groups;
  for (auto& [cores, group] : by_cores)
    groups.push_back(std::move(group));
  return groups;
}

using Numbers = std::vector<std::size_t>;  ///< of groups, ascending

/// Gives the threads of groups a core each, where a thread that has one may change to another of
/// its group's (a maximum flow). Cores that the same groups may use are of one kind.
class Seats {
 public:
  explicit Seats(const std::vector<Group>& groups) : groups_(groups) {
    std::map<int, Numbers> users;
    for (std::size_t group = 0; group < groups.size(); ++group)
      for (const int core : groups[group].cores)
        users[core].push_back(group);
    std::map<Numbers, std::size_t> alike;
    for (const auto& [core, by] : users)
      ++alike[by];
    for (const auto& [by, cores] : alike)
      kinds_.push_back({by, cores, cores, Numbers(by.size())});
  }

  /// Groups that together lack a core for one more thread of `group`; empty if it has got one.
  Numbers seat(std::size_t group) {
    std::vector<Step> steps(groups_.size());
    Numbers reached = {group};
    steps[group].seen = true;
    for (std::size_t next = 0; next < reached.size(); ++next)
      for (Kind& kind : kinds_) {
        if (!std::ranges::binary_search(kind.by, reached[next])) continue;
        if (kind.free > 0) {
          --kind.free;
          take(kind, reached[next], steps);
          return {};
        }
        for (std::size_t i = 0; i < kind.by.size(); ++i)
          if (kind.taken[i] > 0 && !steps[kind.by[i]].seen) {
            steps[kind.by[i]] = {true, reached[next], &kind};
            reached.push_back(kind.by[i]);
          }
      }
    return reached;
  }

  /// What these groups need and have.
  CoreShortage use_of(const Numbers& which) const {
    CoreShortage use;
    for (const std::size_t group : which) {
      use.ranks += groups_[group].ranks;
      use.threads += groups_[group].threads;
    }
    for (const Kind& kind : kinds_)
      if (std::find_first_of(which.begin(), which.end(), kind.by.begin(), kind.by.end()) !=
          which.end())
        use.cores += kind.cores;
    return use;
  }

 private:
  struct Kind {
    Numbers by;  ///< groups that may use these cores
    std::size_t cores, free;
    Numbers taken;  ///< by each of them
  };
  /// How a group was reached: `before` takes a core of `kind` that this group gives up.
  struct Step {
    bool seen = false;
    std::size_t before = 0;
    Kind* kind = nullptr;
  };

  static std::size_t& taken(Kind& kind, std::size_t group) {
    const auto place = std::ranges::lower_bound(kind.by, group) - kind.by.begin();
    return kind.taken[static_cast<std::size_t>(place)];
  }

  static void take(Kind& free, std::size_t group, const std::vector<Step>& steps) {
    ++taken(free, group);
    for (; steps[group].kind != nullptr; group = steps[group].before) {
      --taken(*steps[group].kind, group);
      ++taken(*steps[group].kind, steps[group].before);
    }
  }

  const std::vector<Group>& groups_;
  std::vector<Kind> kinds_;
};

}  // namespace

Cores cores_in(const std::string& list) {
  Cores cores;
  try {
    for (const std::string& range : split_list(list, ','))
      add_range(range, cores);
  } catch (const Error&) {
    return {};
  }
  std::ranges::sort(cores);
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::optional<CoreShortage> core_shortage(const std::vector<RankCores>& ranks) {
  const std::vector<Group> groups = groups_of(ranks);
  Seats seats(groups);
  Numbers all(groups.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const CoreShortage together = seats.use_of(all);
  if (together.threads > together.cores) return together;
  for (const std::size_t group : all)
    for (std::size_t thread = 0; thread < groups[group].threads; ++thread)
      if (const Numbers lacking = seats.seat(group); !lacking.empty()) return seats.use_of(lacking);
  return std::nullopt;
}

std::vector<std::size_t> sharers_of(const std::vector<Cores>& ranks, std::size_t mine) {
  std::vector<std::size_t> sharers;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (rank == mine ||
        std::find_first_of(ranks[rank].begin(), ranks[rank].end(), ranks[mine].begin(),
                           ranks[mine].end()) != ranks[rank].end())
      sharers.push_back(rank);
  return sharers;
}

std::size_t fair_threads(const std::vector<Cores>& ranks, std::size_t mine) {
  return std::max<std::size_t>(1, ranks[mine].size() / sharers_of(ranks, mine).size());
}

}  // namespace gradsync
