// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/read/run_set.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// Longer lists were cut when they were recorded.
constexpr std::size_t kLongestList = 94;

}  // namespace

std::optional<Oversubscription> oversubscription(const std::vector<RankPlace>& topology) {
  std::map<std::string, std::vector<RankCores>> hosts;
  for (const RankPlace& place : topology) {
    const Cores cores = place.affinity.size() > kLongestList ? Cores() : cores_in(place.affinity);
    if (cores.empty() || place.threads <= 0) return std::nullopt;
    hosts[place.host].push_back({cores, static_cast<std::size_t>(place.threads)});
  }
  for (const auto& [host, ranks] : hosts)
    if (const auto found = core_shortage(ranks)) return Oversubscription{*found, host};
  return std::nullopt;
}

bool has_known_host(const RankPlace& place) {
  return !place.host.empty() && place.host != kUnknownHost;
}

bool on_one_host(const std::vector<RankPlace>& topology) {
  return topology.size() > 1 && has_known_host(topology.front()) &&
         std::ranges::all_of(
             topology, [&](const RankPlace& place) { return place.host == topology.front().host; });
}

std::string oversubscription_text(const Oversubscription& found) {
  return fmt::format("{} with {} had {} on host {}", count_text(found.ranks, "rank"),
                     count_text(found.threads, "thread"), count_text(found.cores, "core"),
                     found.host);
}

namespace {

/// Whether ranks that wait for each other or for communication need a core for it.
bool waits_spin(const Run& run) {
  const Mode& mode = mode_named(run.mode);
  const bool in_calls = mode.exchanges && !mode.overlaps && !mode.sleeps;
  const bool by_mpi = mode.rooted || (in_calls && run.reader->option("transport") == "mpi");
  return by_mpi && provenance_of(*run.reader, "mpi").starts_with("Open MPI");
}

/// CPU time against the time that needed a core, over iterations. The one that lacked most is left
/// out, so that a single stall, of whatever cause, is no shared host.
class CoreUse {
 public:
  void add(double busy_s, double used_s) {
    if (!(busy_s > 0) || !(used_s >= 0)) return;
    const Times one{busy_s, std::min(busy_s, used_s)};
    ++count_;
    sum_.busy_s += one.busy_s;
    sum_.got_s += one.got_s;
    if (worst_.busy_s == 0 || one.lacked_s() > worst_.lacked_s()) worst_ = one;
  }

  /// NaN below two iterations.
  double share() const {
    return count_ < 2 ? kNotMeasured : (sum_.got_s - worst_.got_s) / (sum_.busy_s - worst_.busy_s);
  }

 private:
  struct Times {
    double busy_s = 0, got_s = 0;
    double lacked_s() const { return busy_s - got_s; }
  };

  Times sum_, worst_;
  std::size_t count_ = 0;
};

bool computes_on_cpu(const RankPlace& place) {
  return place.device_uuid.empty();
}

/// Whether something of the job needs a core at every moment, since nothing travels by itself.
bool all_on_cpus_of_one_host(const std::vector<RankPlace>& topology) {
  return on_one_host(topology) && std::ranges::all_of(topology, computes_on_cpu);
}

/// The rank that got least; ranks() where none is known.
std::size_t least_served(const Run& run) {
  std::size_t least = run.core_shares.size();
  for (std::size_t rank = 0; rank < run.core_shares.size(); ++rank)
    if (std::isfinite(run.core_shares[rank]) &&
        (least == run.core_shares.size() || run.core_shares[rank] < run.core_shares[least]))
      least = rank;
  return least;
}

bool host_is_shared(const Run& run) {
  const std::size_t rank = least_served(run);
  return rank < run.core_shares.size() && run.core_shares[rank] < kLeastCoreShare;
}

std::string host_of(const Run& run, std::size_t rank) {
  const auto& topology = run.reader->info().topology;
  return rank < topology.size() ? topology[rank].host : "?";
}

/// "ranks on host node1 got at most 36 % to 62 % of a core while they did not wait".
std::string shared_text(const std::string& host, const std::vector<const Run*>& runs) {
  double least = HUGE_VAL, most = 0;
  for (const Run* run : runs) {
    const double share = run->core_shares[least_served(*run)];
    least = std::min(least, share);
    most = std::max(most, share);
  }
  const std::string from = fmt::format("{:.0f} %", 1e2 * least);
  const std::string to = fmt::format("{:.0f} %", 1e2 * most);
  return fmt::format("a rank on host {} got at most {} of a core while it did not wait", host,
                     from == to ? from : from + " to " + to);
}

}  // namespace

std::vector<double> core_shares(const Run& run) {
  RunReader& reader = *run.reader;
  const auto& topology = reader.info().topology;
  std::vector<CoreUse> ranks(reader.ranks());
  CoreUse job;
  const bool spins = waits_spin(run);
  const std::size_t block = rows_per_block(reader.ranks(), 0);
  for (std::size_t first = 0; first < reader.iterations(); first += block) {
    const std::size_t count = std::min(block, reader.iterations() - first);
    const auto time = [&](Phase phase) { return reader.time(phase, first, count); };
    const Matrix used = reader.usage(Usage::kCpuTime, first, count);
    if (std::ranges::none_of(used.values, [](double value) { return std::isfinite(value); }))
      continue;
    const Matrix iteration = time(Phase::kIteration), data = time(Phase::kData);
    const Matrix wait = time(Phase::kWait), exposed = time(Phase::kExposed);
    for (std::size_t row = 0; row < count; ++row) {
      if (!run.steady.keeps(first + row)) continue;
      double shortest_s = HUGE_VAL, data_s = 0, used_s = 0;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const double waits_s = spins ? 0 : wait.at(row, rank) + exposed.at(row, rank);
        ranks[rank].add(iteration.at(row, rank) - data.at(row, rank) - waits_s, used.at(row, rank));
        shortest_s = std::min(shortest_s, iteration.at(row, rank));
        data_s = std::max(data_s, data.at(row, rank));
        used_s += used.at(row, rank);
      }
      job.add(shortest_s - data_s, used_s);
    }
  }
  const double of_job = all_on_cpus_of_one_host(topology) ? job.share() : kNotMeasured;
  std::vector<double> shares(ranks.size(), kNotMeasured);
  for (std::size_t rank = 0; rank < std::min(shares.size(), topology.size()); ++rank)
    if (computes_on_cpu(topology[rank])) shares[rank] = std::fmin(ranks[rank].share(), of_job);
  return shares;
}

std::string_view core_shortage(const Run& run) {
  if (oversubscription(run.reader->info().topology)) return "oversubscribed";
  return host_is_shared(run) ? "shared host" : "";
}

std::vector<RunsShortOfCores> runs_short_of_cores(const std::vector<Run>& runs) {
  std::vector<RunsShortOfCores> all;
  std::map<std::string, std::vector<const Run*>> shared;
  for (const Run& run : runs) {
    const std::string_view word = core_shortage(run);
    if (word.empty()) continue;
    const auto found = oversubscription(run.reader->info().topology);
    if (!found) {
      shared[host_of(run, least_served(run))].push_back(&run);
      continue;
    }
    const std::string text = oversubscription_text(*found);
    auto known = std::ranges::find(all, text, &RunsShortOfCores::text);
    if (known == all.end()) known = all.insert(all.end(), {word, text, {}});
    known->runs.push_back(&run);
  }
  for (const auto& [host, on_host] : shared)
    all.push_back({core_shortage(*on_host.front()), shared_text(host, on_host), on_host});
  return all;
}

}  // namespace gradsync::report
