// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/figures/run_group.h"
#include "analysis/plots/chart.h"
#include "record/run.h"

/// How runs and cells look and what they are called in every plot, and series made from cells.
namespace gradsync::report {

/// "#rrggbb"; a mode has the same color in every plot.
std::string mode_color(const std::string& mode);

/// ChartSeries::dash of the lines of a panel, each by its mode: modes begin with different ones,
/// and lines of one mode have different ones.
class ModeDashes {
 public:
  int next(const std::string& mode);

 private:
  std::map<std::string, std::size_t> lines_;
};

/// Lines of a panel that can be told apart: those of one mode have a dash each.
inline constexpr auto kMostLines = static_cast<std::size_t>(kLineDashes);

/// Columns of a CSV that say which run: ranks, batch_per_rank, batch_global, mode, model, run.
std::vector<NamedText> run_keys(const Run& run);

/// run_keys of repeats, whose names are joined.
std::vector<NamedText> group_keys(const RunGroup& group);

/// What a number can depend on that a label may have to say.
enum class Trait { kModel, kMode, kRanks, kBatchPerRank, kBatchAlone, kBatchGlobal };

/// Labels that tell `groups` apart: of `traits` those that differ among them (the mode always, if
/// it is asked for), and what told_apart adds.
std::vector<std::string> labels_of(const std::vector<const RunGroup*>& groups,
                                   const std::vector<Trait>& traits);

/// Groups by what most plots have a panel for, in the order of the set.
using PanelKey = std::pair<std::string, std::int64_t>;  ///< model, ranks
std::map<PanelKey, std::vector<const RunGroup*>> by_panel(const std::vector<RunGroup>& groups);

/// A panel for cells side by side at x = 1, 2, 3 …, each named by its tick. `groups` keeps those
/// that are shown: more than 24 cannot be read.
ChartPanel side_by_side(std::string title, std::vector<const RunGroup*>& groups);

/// Whole numbers as ticks.
std::vector<ChartTick> number_ticks(const std::set<double>& numbers);

/// Lines whose points are cells: those with one key are one line. In the order of their first
/// cells.
class CellLines {
 public:
  struct Line {
    std::vector<std::string> key;
    const RunGroup* first;
    std::vector<ChartPoint> points;
  };

  /// Lines that come after `most` others are left out.
  explicit CellLines(std::size_t most = kMostLines) : most_(most) {}

  /// Returns whether the cell's line is one of those that are kept.
  bool add(const std::vector<std::string>& key, const RunGroup& group, const ChartPoint& point);

  const std::vector<Line>& lines() const { return lines_; }
  /// "2 more lines not shown"; empty where all are.
  std::string left_out_text() const;
  std::set<double> places() const;  ///< x of all points

  /// A line in the color of each first cell's mode through its points by x, with labels that tell
  /// the lines apart.
  std::vector<ChartSeries> series(const std::vector<Trait>& traits) const;

 private:
  std::size_t most_;
  std::vector<Line> lines_;
  std::set<std::vector<std::string>> left_out_;  ///< keys
};

/// The points by x.
std::vector<ChartPoint> by_place(std::vector<ChartPoint> points);

/// Adds waiting_text() to the caption, where it says something.
void add_waiting_sentence(const RunSet& set, Chart& chart);

}  // namespace gradsync::report
