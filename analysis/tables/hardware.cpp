#include <algorithm>

#include <fmt/format.h>

#include "analysis/tables/group_cells.h"
#include "analysis/tables/tables.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

/// A kind of host: those that differ in nothing but their name are one.
struct HostKind {
  std::vector<std::string> hosts;
  std::size_t ranks = 0;  ///< most of one host
  RankPlace place;        ///< of its first rank
  std::string source;     ///< the first run on it
};

bool same_hardware(const RankPlace& a, const RankPlace& b) {
  return a.device == b.device && a.host_processors == b.host_processors &&
         a.host_sockets == b.host_sockets && a.host_numa_nodes == b.host_numa_nodes &&
         a.host_memory_bytes == b.host_memory_bytes && a.host_caches == b.host_caches &&
         a.host_network == b.host_network && a.device_memory_bytes == b.device_memory_bytes;
}

std::size_t ranks_on(const std::vector<RankPlace>& places, const std::string& host) {
  return static_cast<std::size_t>(std::count_if(
      places.begin(), places.end(), [&](const RankPlace& place) { return place.host == host; }));
}

void add_hosts(const Run& run, std::vector<HostKind>& kinds) {
  const auto& places = run.reader->info().topology;
  for (const RankPlace& place : places) {
    if (place.local_rank != 0) continue;
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const HostKind& one) { return same_hardware(one.place, place); });
    if (kind == kinds.end()) {
      kinds.push_back({{}, 0, place, run.path.string()});
      kind = kinds.end() - 1;
    }
    if (std::ranges::find(kind->hosts, place.host) == kind->hosts.end())
      kind->hosts.push_back(place.host);
    kind->ranks = std::max(kind->ranks, ranks_on(places, place.host));
  }
}

std::vector<Column> hardware_columns() {
  const auto stated = [](const char* name, const char* head, int detail = 1) {
    return Column{name, head, false, "as stated", fmt::format("/topology/{}", name), detail};
  };
  return {{"host", "first host", true},
          {"hosts", "hosts", false, "hosts that differ in nothing else", "/topology/host"},
          {"ranks", "ranks", false, "most ranks of one of them", "/topology/host"},
          {"device", "computes on", true},
          stated("host_processors", "processors"),
          stated("host_sockets", "sockets", 2),
          stated("host_numa_nodes", "NUMA nodes", 2),
          {"memory_gib", "memory GiB", false, "as stated / 2^30", "/topology/host_memory"},
          {"caches", "caches", true, "", "", 2},
          {"network", "network", true},
          {"gpu_memory_gib", "GPU GiB", false, "as stated / 2^30", "/topology/device_memory", 2},
          {"gpu_links", "GPU links", true, "", "", 2}};
}

std::string known_text(const std::string& text) {
  return text.empty() ? "n/a" : text;
}

std::vector<Cell> hardware_row(const HostKind& kind) {
  const RankPlace& place = kind.place;
  const auto gib = [](std::int64_t bytes) {
    return Cell::of(bytes > 0 ? static_cast<double>(bytes) / kGiB : kNotMeasured, 1);
  };
  return {kind.hosts.front(),
          Cell::count(static_cast<double>(kind.hosts.size())),
          Cell::count(static_cast<double>(kind.ranks)),
          place.device,
          known_count(place.host_processors),
          known_count(place.host_sockets),
          known_count(place.host_numa_nodes),
          gib(place.host_memory_bytes),
          known_text(place.host_caches),
          known_text(place.host_network),
          gib(place.device_memory_bytes),
          known_text(place.device_links)};
}

}  // namespace

bool has_hardware(const RunSet& set, const TableOptions&) {
  return std::any_of(set.runs.begin(), set.runs.end(), [](const Run& run) {
    const auto& places = run.reader->info().topology;
    return !places.empty() && places.front().host_processors > 0;
  });
}

Table make_hardware_table(const RunSet& set, const TableOptions&) {
  Table table{
      "hardware",
      "Hosts of the runs",
      {"as the kernel and the GPU's driver stated when the run began; hosts that differ in "
       "nothing but their names are one row",
       "network: ports that are active and state a rate; virtual interfaces state none. "
       "paths between GPUs: PIX one PCIe switch, PXB several, PHB a host bridge, NODE a NUMA "
       "node, SYS none of these"},
      hardware_columns(),
      {}};
  std::vector<HostKind> kinds;
  for (const Run& run : set.runs)
    add_hosts(run, kinds);
  for (const HostKind& kind : kinds)
    table.add(hardware_row(kind), kind.source);
  return table;
}

}  // namespace gradsync::report
