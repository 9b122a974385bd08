#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/split_figures.h"
#include "analysis/figures/utilization.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// Of a network and its batch, by what it exchanges for what it computes.
struct NetworkPlace {
  double bytes_per_kflop;
  std::string name;

  NetworkPlace(double cost, std::string label) : bytes_per_kflop(cost), name(std::move(label)) {}
  auto operator<=>(const NetworkPlace&) const = default;
};

std::string network_name(const RunGroup& group) {
  const Run& run = group.first();
  const std::string schedule = batch_schedule(run);
  const std::string batch = run.batch_per_rank > 0 ? std::to_string(run.batch_per_rank) : "unknown";
  return fmt::format("{}, batch {}", run.model, schedule.empty() ? batch : schedule);
}

/// Cells of one number of ranks: a series a mode, the networks side by side.
ChartPanel networks_panel(const std::vector<const RunGroup*>& cells, GroupSplits& splits) {
  ChartPanel panel{count_text(cells.front()->first().ranks, "rank"), "", {}, {}};
  panel.slanted = true;
  // The first of a network's modes: steady iterations of another may hold fewer small batches.
  std::map<std::string, NetworkPlace> by_name;
  for (const RunGroup* group : cells) {
    const std::string name = network_name(*group);
    by_name.try_emplace(name, 1e3 * network_cost(group->first()).bytes_per_flop(), name);
  }
  std::set<NetworkPlace> places;
  for (const auto& named : by_name)
    places.insert(named.second);
  for (const NetworkPlace& place : places)
    panel.x_ticks.push_back({static_cast<double>(panel.x_ticks.size() + 1),
                             fmt::format("{}: {:.4g}", place.name, place.bytes_per_kflop)});
  std::map<std::string, std::vector<ChartPoint>> points;
  for (const RunGroup* group : cells) {
    const NetworkPlace& place = by_name.at(network_name(*group));
    ChartPoint point{1.0 + static_cast<double>(std::distance(places.begin(), places.find(place))),
                     splits.measured(*group).percent(Phase::kExposed)};
    point.name = place.name;
    points[group->first().mode].push_back(point);
  }
  for (auto& [mode, of_mode] : points) {
    std::ranges::stable_sort(of_mode, {}, &ChartPoint::x);
    panel.series.push_back(
        {mode, Mark::kMarkers, mode_color(mode), 1, 2, std::move(of_mode), {{"mode", mode}}});
  }
  return panel;
}

}  // namespace

std::optional<Chart> make_networks_plot(const RunSet& set) {
  const std::vector<RunGroup> groups = group_runs(set);
  std::map<std::int64_t, std::vector<const RunGroup*>> panels;
  std::set<std::string> models;
  for (const RunGroup& group : groups) {
    const Run& run = group.first();
    const bool exchanges = run.ranks > 1 && mode_named(run.mode).exchanges;
    if (!exchanges || !std::isfinite(network_cost(run).bytes_per_flop())) continue;
    models.insert(run.model);
    panels[run.ranks].push_back(&group);
  }
  if (models.size() < 2) return std::nullopt;
  GroupSplits splits(groups);
  Chart chart{"Synchronization cost by network",
              {"Means over steady iterations, ranks and repeats.",
               "B/kFLOP: bytes of gradients per thousand operations of an iteration on one rank. "
               "The networks are in its order."},
              {"network", "network, batch per rank: B/kFLOP", "", 0, false},
              {"exposed_percent", "exposed (% of iteration)", "%", 0, true},
              {}};
  add_waiting_sentence(set, chart);
  for (const auto& [ranks, cells] : panels)
    chart.panels.push_back(networks_panel(cells, splits));
  return chart;
}

}  // namespace gradsync::report
