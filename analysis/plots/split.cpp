// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/experiments.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/figures/utilization.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr double kWorthCutting = 1.6;  // whiskers longer than that many times the highest bar
constexpr const char *kComputeColor = "#56b4e9", *kHiddenColor = "#003f66",
                     *kExposedColor = "#d55e00", *kWaitColor = "#f0e442", *kOtherColor = "#bbbbbb";

struct Bar {
  SplitFigures mean;
  double low_s = kNotMeasured, high_s = kNotMeasured;  ///< 5 % and 95 % quantile of iterations

  Bar(const RunGroup& group, GroupSplits& splits) : mean(splits.measured(group)) {
    const std::vector<double> iterations_s = steady_rank_means(group, Phase::kIteration);
    low_s = quantile(iterations_s, 0.05);
    high_s = quantile(iterations_s, 0.95);
  }
  bool is_whole() const { return std::isfinite(mean.parts_s() + mean[Phase::kHidden]); }
  double busy_s() const { return mean[Phase::kCompute] + mean[Phase::kExposed]; }
};

using BarOf = std::map<const RunGroup*, Bar>;

bool has_one_batch(const std::vector<const RunGroup*>& groups) {
  return std::ranges::all_of(groups, [&](const RunGroup* group) {
    return group->first().batch_per_rank == groups.front()->first().batch_per_rank &&
           batch_schedule(group->first()).empty();
  });
}

/// Bars of one model on one number of ranks.
class SplitPanel {
 public:
  SplitPanel(std::vector<const RunGroup*> groups, const BarOf& bars) {
    std::ranges::stable_sort(groups, {},
                             [](const RunGroup* group) { return group->first().batch_global; });
    const Run& run = groups.front()->first();
    panel_ = side_by_side(run.model + ", " + count_text(run.ranks, "rank"), groups);
    if (has_one_batch(groups)) panel_.title += ", " + batch_text(run);
    for (const RunGroup* group : groups)
      bars_.push_back(&bars.at(group));
    cut_long_whiskers();
  }

  /// A part of the bars: from where it begins to where it ends.
  template <typename Ends>
  void add(const char* name, Mark mark, const char* color, Ends ends) {
    ChartSeries series{name, mark, color, 1, 2, {}, {}};
    for (std::size_t i = 0; i < bars_.size(); ++i) {
      const auto [low_s, high_s] = ends(*bars_[i]);
      if (std::isfinite(high_s)) series.points.push_back(point(i, high_s - low_s, low_s, high_s));
    }
    panel_.series.push_back(std::move(series));
  }

  ChartPanel finish() {
    ChartSeries whiskers{"5 % to 95 % of the iterations", Mark::kWhisker, "", 1, 1, {}, {}};
    for (std::size_t i = 0; i < bars_.size(); ++i)
      whiskers.points.push_back(
          point(i, bars_[i]->mean[Phase::kIteration], bars_[i]->low_s, bars_[i]->high_s));
    panel_.series.push_back(std::move(whiskers));
    return std::move(panel_);
  }

 private:
  ChartPoint point(std::size_t bar, double value_s, double low_s, double high_s) const {
    const ChartTick& tick = panel_.x_ticks[bar];
    return {tick.at, 1e3 * value_s, 1e3 * low_s, 1e3 * high_s, tick.text};
  }

  /// Ends the y axis where a few long whiskers would flatten all bars.
  void cut_long_whiskers() {
    double bar_s = 0, whisker_s = 0;
    for (const Bar* bar : bars_) {
      bar_s = std::fmax(bar_s, bar->mean[Phase::kIteration]);
      whisker_s = std::fmax(whisker_s, bar->high_s);
    }
    const double end_s = kWorthCutting * bar_s;
    if (!(whisker_s > end_s)) return;
    panel_.y_top = 1e3 * end_s;
    const auto above =
        std::ranges::count_if(bars_, [&](const Bar* bar) { return bar->high_s > end_s; });
    panel_.subtitle = fmt::format("intervals that end above the axis: {}{}{}", above,
                                  panel_.subtitle.empty() ? "" : "; ", panel_.subtitle);
  }

  ChartPanel panel_;
  std::vector<const Bar*> bars_;
};

ChartPanel split_panel(const std::vector<const RunGroup*>& groups, const BarOf& bars,
                       bool waits_apart) {
  using Ends = std::pair<double, double>;
  SplitPanel panel(groups, bars);
  panel.add("compute", Mark::kBar, kComputeColor,
            [](const Bar& bar) { return Ends(0, bar.mean[Phase::kCompute]); });
  panel.add("hidden communication (overlapped)", Mark::kHatchedBar, kHiddenColor,
            [](const Bar& bar) {
              const double compute_s = bar.mean[Phase::kCompute];
              return Ends(compute_s - bar.mean[Phase::kHidden], compute_s);
            });
  panel.add("exposed communication", Mark::kBar, kExposedColor,
            [](const Bar& bar) { return Ends(bar.mean[Phase::kCompute], bar.busy_s()); });
  if (waits_apart)
    panel.add("straggler wait (before the last rank arrived)", Mark::kBar, kWaitColor,
              [](const Bar& bar) { return Ends(bar.busy_s(), bar.busy_s() + bar.mean.wait_s()); });
  panel.add("other", Mark::kBar, kOtherColor, [](const Bar& bar) {
    const double before_s = bar.busy_s() + bar.mean.wait_part_s;
    return Ends(before_s, before_s + bar.mean[Phase::kOther]);
  });
  return panel.finish();
}

}  // namespace

std::optional<Chart> make_split_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  GroupSplits splits(groups);
  BarOf bars;
  CountRange iterations;
  for (const RunGroup& group : groups)
    if (const Bar bar(group, splits); bar.is_whole()) {
      bars.emplace(&group, bar);
      for (const Run* run : group.repeats)
        iterations.add(run->steady.kept());
    }
  auto panels = by_panel(groups);
  for (auto& [key, cells] : panels)
    std::erase_if(cells, [&](const RunGroup* group) { return !bars.contains(group); });
  std::erase_if(panels, [](const auto& panel) { return panel.second.empty(); });
  if (panels.empty()) return std::nullopt;
  const bool named_alike =
      std::ranges::all_of(panels, [](const auto& panel) { return has_one_batch(panel.second); });
  const bool apart =
      std::ranges::any_of(set.runs, [](const Run& run) { return waits_apart(*run.reader); });
  Chart chart{"Where an iteration goes, measured",
              {fmt::format("Means over n = {} steady iterations per run, its ranks and "
                           "its repeats.",
                           iterations.text()),
               "Parts sum to the iteration; hatched: communication that overlaps with compute and "
               "adds no time."},
              {"bar", named_alike ? "mode" : "mode, batch per rank", "", 0, false},
              {"time_ms", "iteration time (ms)", "ms", 0, true},
              {}};
  add_waiting_sentence(set, chart);
  for (const auto& [key, cells] : panels)
    chart.panels.push_back(split_panel(cells, bars, apart));
  return chart;
}

namespace {

ChartPoint ratio_point(const ChartTick& tick, const Estimate& ratio) {
  return {tick.at, 1e2 * (ratio.value - 1), 1e2 * (ratio.low - 1), 1e2 * (ratio.high - 1),
          tick.text};
}

/// The parts of each cost: those above 0 stand on each other, those below 0 hang below each other,
/// so none hides another one.
std::vector<ChartSeries> cost_bars(const std::vector<const ContenderFigures*>& compared,
                                   const ContenderFigures& without,
                                   const std::vector<ChartTick>& ticks) {
  struct Part {
    CostPart part;
    const char *label, *color;
  };
  constexpr std::array<Part, kCostParts.size()> kParts = {
      {{CostPart::kExposed, "exposed communication", kExposedColor},
       {CostPart::kWait, "straggler wait", kWaitColor},
       {CostPart::kCompute, "compute", kComputeColor},
       {CostPart::kRest, "rest", kOtherColor}}};
  std::vector<ChartSeries> bars;
  for (const Part& part : kParts)
    bars.push_back({part.label, Mark::kBar, part.color, 1, 2, {}, {}});
  for (std::size_t i = 0; i < compared.size(); ++i) {
    double without_s = kNotMeasured, above = 0, below = 0;
    const BlockTime more = compared[i]->more_than(without, &without_s);
    for (std::size_t part = 0; part < kParts.size(); ++part) {
      const double percent =
          1e2 * more.parts_s[static_cast<std::size_t>(kParts[part].part)] / without_s;
      if (!std::isfinite(percent)) continue;
      double& end = percent < 0 ? below : above;
      bars[part].points.push_back({ticks[i].at, percent, end, end + percent, ticks[i].text});
      end += percent;
    }
  }
  return bars;
}

/// Against the contender without exchange; where there is none, against the reference, and a cost
/// has no parts.
ChartPanel cost_panel(const Experiment& experiment) {
  constexpr std::size_t kMostUpright = 3;
  const ContenderFigures* without = experiment.without_exchange();
  const ContenderFigures& base = without ? *without : experiment.contenders.front();
  std::vector<const ContenderFigures*> compared;
  for (const ContenderFigures& one : experiment.contenders)
    if (&one != &base && !one.control && !one.blocks.empty()) compared.push_back(&one);
  const Run& run = *base.run;
  ChartPanel panel{
      fmt::format("{}, {}, {}", run.model, count_text(run.ranks, "rank"), batch_text(run)),
      fmt::format("base: {}, {}; n = {}{}", base.name, format_duration(median(base.times_s())),
                  count_text(base.blocks.size(), "round"),
                  without ? "" : "; no contender without exchange, so no parts"),
      {}};
  panel.slanted = compared.size() > kMostUpright;
  ChartSeries ratios{"iteration, 95 % interval", Mark::kMarkers, "", 1, 1, {}},
      noise{"control: differences in the band are noise", Mark::kBand, "#808080", 1, 1, {}};
  for (const ContenderFigures* one : compared) {
    panel.x_ticks.push_back({static_cast<double>(panel.x_ticks.size() + 1), one->name});
    ratios.points.push_back(ratio_point(panel.x_ticks.back(), one->ratio_to(base)));
  }
  if (compared.empty()) return panel;
  if (const Estimate control = experiment.control(); control.has_interval()) {
    noise.points.push_back(ratio_point({1, "control"}, control));
    panel.series.push_back(std::move(noise));
  }
  if (without)
    for (ChartSeries& bars : cost_bars(compared, *without, panel.x_ticks))
      panel.series.push_back(std::move(bars));
  panel.series.push_back(std::move(ratios));
  return panel;
}

}  // namespace

std::optional<Chart> make_cost_plot(const RunStudy& runs) {
  Chart chart{
      "What synchronization costs, measured in one job",
      {"Contenders of one job, in turn. Parts: means over the middle half of the rounds, of "
       "the rank that the others waited for; parts below 0 became shorter.",
       "Intervals: signed-rank test of the ratios within the rounds."},
      {"contender", "contender", "", 0, false},
      {"percent", "longer than the base (%)", "%", 0, true},
      {}};
  for (const Experiment& experiment : runs.experiments())
    if (ChartPanel panel = cost_panel(experiment); !panel.series.empty())
      chart.panels.push_back(std::move(panel));
  return chart.panels.empty() ? std::nullopt : std::optional(std::move(chart));
}

namespace {

struct Measure {
  const char* label;
  const char* color;
  double Utilization::*value;
};
constexpr std::array<Measure, 5> kMeasures = {
    {{"compute, of the time", "#56b4e9", &Utilization::compute},
     {"link busy, of the time", "#d55e00", &Utilization::link_busy},
     {"FLOP/s, of the probe", "#009e73", &Utilization::of_probe},
     {"FLOP/s, of the data sheet", "#003f66", &Utilization::of_data_sheet},
     {"GPU busy, of the time", "#cc79a7", &Utilization::gpu_busy}}};

/// The mean over ranks and repeats, with the least and the most of a rank.
ChartPoint mean_point(const std::vector<Utilization>& ranks, const Measure& measure,
                      const ChartTick& tick) {
  const Statistics figures =
      statistics(each(ranks, [&](const Utilization& rank) { return 1e2 * rank.*measure.value; }));
  return {tick.at, figures.mean, figures.minimum, figures.maximum, tick.text};
}

std::vector<Utilization> of_all_ranks(const RunGroup& group, double peak_flop_per_s) {
  std::vector<Utilization> all;
  for (const Run* run : group.repeats)
    for (const Utilization& rank : utilization(*run, peak_flop_per_s))
      all.push_back(rank);
  return all;
}

ChartPanel use_panel(const PanelKey& key, std::vector<const RunGroup*> groups,
                     double peak_flop_per_s) {
  ChartPanel panel =
      side_by_side(fmt::format("{}, {}", key.first, count_text(key.second, "rank")), groups);
  std::vector<std::vector<Utilization>> cells =
      each(groups, [=](const RunGroup* group) { return of_all_ranks(*group, peak_flop_per_s); });
  for (const Measure& measure : kMeasures) {
    ChartSeries series{measure.label, Mark::kMarkers, measure.color, 1, 2, {}, {}};
    for (std::size_t i = 0; i < cells.size(); ++i)
      series.points.push_back(mean_point(cells[i], measure, panel.x_ticks[i]));
    if (std::ranges::any_of(series.points,
                            [](const ChartPoint& point) { return std::isfinite(point.y); }))
      panel.series.push_back(std::move(series));
  }
  return panel;
}

}  // namespace

std::optional<Chart> make_utilization_plot(const PlotInput& input) {
  const RunSet& set = input.runs.set();
  Chart chart{
      "How far ranks and links are used",
      {"Means over ranks, repeats and steady iterations; whiskers: least and most of a rank."},
      {"cell", "mode, batch per rank", "", 0, false},
      {"percent", "used (%)", "%", 0, true},
      {}};
  const auto groups = group_runs(set);
  for (const auto& [key, cells] : by_panel(groups))
    if (ChartPanel panel = use_panel(key, cells, input.options.peak_flop_per_s);
        !panel.series.empty())
      chart.panels.push_back(std::move(panel));
  if (chart.panels.empty()) return std::nullopt;
  add_waiting_sentence(set, chart);
  return chart;
}

namespace {

/// Place of a network and its batch, by what it exchanges for what it computes.
struct NetworkPlace {
  double bytes_per_kflop;
  std::string name;

  NetworkPlace(double cost, std::string label) : bytes_per_kflop(cost), name(std::move(label)) {}
  auto operator<=>(const NetworkPlace&) const = default;  // NOLINT(modernize-use-nullptr)
};

std::string network_name(const RunGroup& group, const std::vector<const Run*>& among) {
  const Run& run = group.first();
  const std::string schedule = batch_schedule(run);
  const std::string batch = run.batch_per_rank > 0 ? std::to_string(run.batch_per_rank) : "unknown";
  return fmt::format("{}, batch {}", network_text(run, among), schedule.empty() ? batch : schedule);
}

/// Cells of one number of ranks: a series a mode, the networks side by side.
ChartPanel networks_panel(const std::vector<const RunGroup*>& cells, GroupSplits& splits) {
  ChartPanel panel{count_text(cells.front()->first().ranks, "rank"), "", {}, {}};
  panel.slanted = true;
  // The first of a network's modes: steady iterations of another may hold fewer small batches.
  std::map<std::string, NetworkPlace> by_name;
  const auto runs = each(cells, [](const RunGroup* group) { return &group->first(); });
  const auto names = each(cells, [&](const RunGroup* group) { return network_name(*group, runs); });
  for (std::size_t i = 0; i < cells.size(); ++i)
    by_name.try_emplace(names[i], 1e3 * network_cost(cells[i]->first()).bytes_per_flop(), names[i]);
  std::set<NetworkPlace> places;
  for (const auto& named : by_name)
    places.insert(named.second);
  for (const NetworkPlace& place : places)
    panel.x_ticks.push_back({static_cast<double>(panel.x_ticks.size() + 1),
                             fmt::format("{}: {:.4g}", place.name, place.bytes_per_kflop)});
  std::map<std::string, std::vector<ChartPoint>> points;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const RunGroup& group = *cells[i];
    const NetworkPlace& place = by_name.at(names[i]);
    ChartPoint point{1.0 + static_cast<double>(std::distance(places.begin(), places.find(place))),
                     splits.measured(group).percent(Phase::kExposed)};
    point.name = place.name;
    points[group.first().mode].push_back(point);
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
