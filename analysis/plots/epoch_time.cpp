#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// Whole epochs of one cell: training time of the slowest rank, the first epoch apart.
struct EpochTimes {
  std::vector<double> first_s, later_s;
  bool has_later() const { return !later_s.empty(); }
  const std::vector<double>& shown() const { return has_later() ? later_s : first_s; }
};

// A run that was told after how many iterations to end may have cut its last epoch off: that one
// is whole only if it is as long as one before it.
bool epoch_time_whole(const RunReader& run, std::size_t epoch) {
  const auto& epochs = run.epochs();
  if (epoch + 1 < epochs.size()) return true;
  const std::string limit = run.option("iterations");
  if (limit.empty() || limit == "0") return run.status() == RunStatus::kComplete;
  return epoch > 0 && epochs[epoch].iterations == epochs[0].iterations;
}

double slowest_s(const EpochRow& epoch) {
  double slowest = kNotMeasured;
  for (const RankEpoch& rank : epoch.ranks)
    slowest = std::fmax(slowest, rank.training_time_s);
  return slowest;
}

EpochTimes times_of(const RunGroup& group) {
  EpochTimes times;
  for (const Run* run : group.repeats)
    for (std::size_t e = 0; e < run->reader->epochs().size(); ++e) {
      const double time_s = slowest_s(run->reader->epochs()[e]);
      if (epoch_time_whole(*run->reader, e) && std::isfinite(time_s))
        (e == 0 ? times.first_s : times.later_s).push_back(time_s);
    }
  return times;
}

using Cells = std::vector<std::pair<const RunGroup*, EpochTimes>>;

ChartPoint epoch_time_point_of(const RunGroup& group, const std::vector<double>& times_s) {
  const Statistics figures = statistics(times_s);
  ChartPoint point{static_cast<double>(group.first().batch_per_rank), figures.median};
  if (figures.count < 2) return point;
  point.low = figures.minimum;
  point.high = figures.maximum;
  return point;
}

ChartSeries epoch_time_line_of(const Cells& cells) {
  const RunGroup& first = *cells.front().first;
  ChartSeries line{"", Mark::kLinePoints, mode_color(first.first().mode), 1, 2,
                   {}, group_keys(first)};
  for (const auto& [group, times] : cells)
    line.points.push_back(epoch_time_point_of(*group, times.shown()));
  std::stable_sort(line.points.begin(), line.points.end(),
                   [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  return line;
}

using Key = std::vector<std::string>;

/// Cells of a line differ in nothing but the batch.
Key line_key(const Run& run) {
  Key key = option_values(run, cell_options());
  key.push_back(run.mode);
  key.push_back(option_value(run, "threads"));
  return key;
}

/// The lines of a panel, in the order of their first cells.
struct EpochTimeLine {
  Key key;
  Cells cells;
};
using Lines = std::vector<EpochTimeLine>;

void add_cell(Lines& lines, const RunGroup& group, EpochTimes times) {
  const Key key = line_key(group.first());
  auto line = std::find_if(lines.begin(), lines.end(),
                           [&](const EpochTimeLine& l) { return l.key == key; });
  if (line == lines.end()) line = lines.insert(lines.end(), {key, {}});
  line->cells.emplace_back(&group, std::move(times));
}

struct EpochTimeCounts {
  std::size_t least = 0, most = 0, only_first = 0, without = 0;
};

ChartPanel epoch_time_panel_of(const Lines& lines) {
  const Run& run = lines.front().cells.front().first->first();
  ChartPanel panel{
      run.model + ", " + count_text(run.ranks, "rank"), "", {}, {}, kNotMeasured, false};
  std::vector<const RunGroup*> groups;
  std::set<std::int64_t> batches;
  for (const auto& [key, cells] : lines) {
    panel.series.push_back(epoch_time_line_of(cells));
    groups.push_back(cells.front().first);
    for (const auto& [group, times] : cells)
      batches.insert(group->first().batch_per_rank);
  }
  const auto labels = labels_of(groups, {Trait::kMode});
  for (std::size_t i = 0; i < labels.size(); ++i)
    panel.series[i].label = labels[i];
  for (const std::int64_t batch : batches)
    panel.x_ticks.push_back({static_cast<double>(batch), std::to_string(batch)});
  return panel;
}

std::vector<std::string> epoch_time_caption(const EpochTimeCounts& counts) {
  std::vector<std::string> sentences = {fmt::format(
      "Median over n = {} whole epochs of the training time (waiting for data "
      "left out) of the slowest rank; bars: smallest to largest.",
      counts.least == counts.most ? std::to_string(counts.most)
                                  : fmt::format("{} to {}", counts.least, counts.most))};
  sentences.push_back(
      counts.only_first == 0
          ? "The first epoch, which warms up, is left out."
          : fmt::format("The first epoch is left out, except where it is the only one ({} cells).",
                        counts.only_first));
  if (counts.without > 0)
    sentences.push_back(
        fmt::format("Not shown, since no epoch was finished: {} cells.", counts.without));
  return sentences;
}

}  // namespace

std::optional<Chart> make_epoch_time_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  std::map<std::pair<std::string, std::int64_t>, Lines> panels;
  EpochTimeCounts counts;
  for (const RunGroup& group : groups) {
    const EpochTimes times = times_of(group);
    const Run& run = group.first();
    if (!batch_schedule(run).empty()) continue;
    if (times.shown().empty() || run.batch_per_rank == 0) {
      ++counts.without;
      continue;
    }
    counts.least =
        std::min(counts.most == 0 ? times.shown().size() : counts.least, times.shown().size());
    counts.most = std::max(counts.most, times.shown().size());
    counts.only_first += times.has_later() ? 0 : 1;
    add_cell(panels[{run.model, run.ranks}], group, times);
  }
  if (panels.empty()) return std::nullopt;
  Chart chart{"Epoch time against batch size",
              epoch_time_caption(counts),
              {"batch_per_rank", "batch size per rank", "", 2, false},
              {"training_time_s", "training time of an epoch (s)", "s", 0, true},
              {}};
  for (const auto& [key, lines] : panels)
    chart.panels.push_back(epoch_time_panel_of(lines));
  return chart;
}

}  // namespace gradsync::report
