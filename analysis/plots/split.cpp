#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/figures/split_figures.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "analysis/read/columns.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostBars = 24;  // of a panel; more cannot be read
constexpr std::size_t kMostUpright = 4;
constexpr double kSplitWorthCutting = 1.6;  // whiskers longer than that many times the highest bar
constexpr const char *kComputeColor = "#56b4e9", *kHiddenColor = "#003f66",
                     *kExposedColor = "#d55e00", *kWaitColor = "#f0e442", *kOtherColor = "#bbbbbb",
                     *kInk = "#222222";

struct Bar {
  const RunGroup* group;
  SplitFigures mean;
  double low_s = kNotMeasured, high_s = kNotMeasured;  ///< 5 % and 95 % quantile of iterations
};

Bar bar_of(const RunGroup& group) {
  std::vector<SplitFigures> runs;
  std::vector<double> iterations;
  for (const Run* run : group.repeats) {
    runs.push_back(mean_of(split_figures(*run->reader, run->steady)));
    const auto all = mean_over_ranks(run->reader->time(Phase::kIteration));
    for (std::size_t row = 0; row < all.size(); ++row)
      if (run->steady.keeps(row)) iterations.push_back(all[row]);
  }
  return {&group, mean_of(runs), quantile(iterations, 0.05), quantile(iterations, 0.95)};
}

bool split_whole(const Bar& bar) {
  return std::isfinite(bar.mean.parts_s() + bar.mean[Phase::kHidden]);
}

/// A part of all bars: from where it begins to where it ends, in ms.
template <typename Ends>
ChartSeries part(const std::string& name, Mark mark, const char* color,
                 const std::vector<Bar>& bars, const std::vector<std::string>& names, Ends ends) {
  ChartSeries series{name, mark, color, 1, 2, {}, {}};
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const auto [low_s, high_s] = ends(bars[i]);
    series.points.push_back(
        {static_cast<double>(i + 1), 1e3 * (high_s - low_s), 1e3 * low_s, 1e3 * high_s, names[i]});
  }
  return series;
}

/// Where the y axis ends in s, if a few long whiskers would flatten all bars; else NaN.
double cut_s(const std::vector<Bar>& bars) {
  double bar_s = 0, whisker_s = 0;
  for (const Bar& bar : bars) {
    bar_s = std::fmax(bar_s, bar.mean[Phase::kIteration]);
    whisker_s = std::fmax(whisker_s, bar.high_s);
  }
  return whisker_s > kSplitWorthCutting * bar_s ? kSplitWorthCutting * bar_s : kNotMeasured;
}

std::string split_subtitle(const std::vector<Bar>& bars, std::size_t left_out) {
  const auto above = std::count_if(bars.begin(), bars.end(), [end_s = cut_s(bars)](const Bar& bar) {
    return bar.high_s > end_s;
  });
  std::string text = above > 0 ? fmt::format("intervals that end above the axis: {}", above) : "";
  if (left_out > 0) text += fmt::format("{}{} more not shown", text.empty() ? "" : "; ", left_out);
  return text;
}

ChartSeries whiskers(const std::vector<Bar>& bars, const std::vector<std::string>& names) {
  ChartSeries series{"5 % to 95 % of the iterations", Mark::kWhisker, kInk, 1, 1, {}, {}};
  for (std::size_t i = 0; i < bars.size(); ++i)
    series.points.push_back({static_cast<double>(i + 1), 1e3 * bars[i].mean[Phase::kIteration],
                             1e3 * bars[i].low_s, 1e3 * bars[i].high_s, names[i]});
  return series;
}

std::vector<std::string> split_names_of(const std::vector<Bar>& bars) {
  std::vector<const RunGroup*> groups;
  for (const Bar& bar : bars)
    groups.push_back(bar.group);
  return labels_of(groups, {Trait::kMode, Trait::kBatchAlone});
}

bool has_one_batch(const std::vector<Bar>& bars) {
  return std::all_of(bars.begin(), bars.end(), [&](const Bar& bar) {
    return bar.group->first().batch_per_rank == bars.front().group->first().batch_per_rank &&
           batch_schedule(bar.group->first()).empty();
  });
}

std::string split_title(const std::vector<Bar>& bars) {
  const Run& run = bars.front().group->first();
  const std::string batch = has_one_batch(bars) ? ", " + batch_text(run) : "";
  return run.model + ", " + count_text(run.ranks, "rank") + batch;
}

using Ends = std::pair<double, double>;

double busy_s(const Bar& bar) {
  return bar.mean[Phase::kCompute] + bar.mean[Phase::kExposed];
}

ChartPanel split_panel_of(std::vector<Bar> bars, bool waits_apart) {
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) {
    return a.group->first().batch_global < b.group->first().batch_global;
  });
  const std::size_t left_out = bars.size() > kMostBars ? bars.size() - kMostBars : 0;
  bars.resize(bars.size() - left_out);
  const auto names = split_names_of(bars);
  ChartPanel panel{split_title(bars), split_subtitle(bars, left_out), {}, {},
                   1e3 * cut_s(bars), bars.size() > kMostUpright};
  panel.series = {
      part("compute", Mark::kBar, kComputeColor, bars, names,
           [](const Bar& bar) {
             return Ends{0, bar.mean[Phase::kCompute]};
           }),
      part("hidden communication (overlapped)", Mark::kHatchedBar, kHiddenColor, bars, names,
           [](const Bar& bar) {
             const double compute = bar.mean[Phase::kCompute];
             return Ends{compute - bar.mean[Phase::kHidden], compute};
           }),
      part("exposed communication", Mark::kBar, kExposedColor, bars, names,
           [](const Bar& bar) {
             return Ends{bar.mean[Phase::kCompute], busy_s(bar)};
           }),
      part("other", Mark::kBar, kOtherColor, bars, names,
           [](const Bar& bar) {
             const double before = busy_s(bar) + bar.mean.wait_part_s;
             return Ends{before, before + bar.mean[Phase::kOther]};
           }),
      whiskers(bars, names)};
  if (waits_apart) {
    ChartSeries waits = part("straggler wait (before the last rank arrived)", Mark::kBar,
                             kWaitColor, bars, names, [](const Bar& bar) {
                               return Ends{busy_s(bar), busy_s(bar) + bar.mean.wait_part_s};
                             });
    std::erase_if(waits.points, [&](const ChartPoint& point) {
      return !bars[static_cast<std::size_t>(point.x) - 1].mean.waits_apart;
    });
    panel.series.insert(panel.series.end() - 2, std::move(waits));
  }
  for (std::size_t i = 0; i < bars.size(); ++i)
    panel.x_ticks.push_back({static_cast<double>(i + 1), names[i]});
  return panel;
}

std::string counts_text(const std::vector<Bar>& bars) {
  std::size_t least = bars.front().mean.iterations, most = 0;
  for (const Bar& bar : bars) {
    least = std::min(least, bar.mean.iterations);
    most = std::max(most, bar.mean.iterations);
  }
  return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

}  // namespace

std::optional<Chart> make_split_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  std::vector<Bar> all;
  std::map<std::pair<std::string, std::int64_t>, std::vector<Bar>> panels;
  for (const RunGroup& group : groups) {
    const Bar bar = bar_of(group);
    if (!split_whole(bar)) continue;
    all.push_back(bar);
    panels[{group.first().model, group.first().ranks}].push_back(bar);
  }
  if (all.empty()) return std::nullopt;
  const bool named_alike = std::all_of(
      panels.begin(), panels.end(), [](const auto& panel) { return has_one_batch(panel.second); });
  const bool apart = std::any_of(set.runs.begin(), set.runs.end(),
                                 [](const Run& run) { return waits_apart(*run.reader); });
  Chart chart{"Where an iteration goes, measured",
              {fmt::format("Means over n = {} steady iterations per run, its ranks and "
                           "its repeats.",
                           counts_text(all)),
               "Parts sum to the iteration; hatched: communication that overlaps with compute and "
               "adds no time."},
              {"bar", named_alike ? "mode" : "mode, batch per rank", "", 0, false},
              {"time_ms", "iteration time (ms)", "ms", 0, true},
              {}};
  add_waiting_sentence(set, chart);
  for (const auto& [key, bars] : panels)
    chart.panels.push_back(split_panel_of(bars, apart));
  return chart;
}

}  // namespace gradsync::report
