// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/plots/run_marks.h"

#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/rank_figures.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// A number that the run may not say.
std::string known_text(std::int64_t number) {
  return number > 0 ? std::to_string(number) : "unknown";
}

std::string trait_text(const Run& run, Trait trait) {
  const std::string schedule = batch_schedule(run);
  const bool of_batch = trait != Trait::kModel && trait != Trait::kMode && trait != Trait::kRanks;
  if (of_batch && !schedule.empty())
    return (trait == Trait::kBatchAlone ? "" : "batch schedule ") + schedule;
  switch (trait) {
    case Trait::kModel:
      return run.model;
    case Trait::kMode:
      return run.mode;
    case Trait::kRanks:
      return count_text(run.ranks, "rank");
    case Trait::kBatchPerRank:
      return batch_text(run);
    case Trait::kBatchAlone:
      return known_text(run.batch_per_rank);
    case Trait::kBatchGlobal:
      return fmt::format("batch {}", known_text(run.batch_global));
  }
  return "";
}

bool says_something(const std::vector<const RunGroup*>& groups, Trait trait) {
  if (trait == Trait::kMode) return true;
  return std::ranges::any_of(groups, [&](const RunGroup* group) {
    return trait_text(group->first(), trait) != trait_text(groups.front()->first(), trait);
  });
}

}  // namespace

std::string mode_color(const std::string& mode) {
  return std::string(mode_named(mode).color);
}

int ModeDashes::next(const std::string& mode) {
  return static_cast<int>((mode_position(mode) + lines_[mode]++) %
                          static_cast<std::size_t>(kLineDashes)) +
         1;
}

std::vector<NamedText> run_keys(const Run& run) {
  return {{"ranks", std::to_string(run.ranks)},
          {"batch_per_rank", known_text(run.batch_per_rank)},
          {"batch_global", known_text(run.batch_global)},
          {"mode", run.mode},
          {"model", run.model},
          {"run", run.name}};
}

std::vector<NamedText> group_keys(const RunGroup& group) {
  std::vector<NamedText> keys = run_keys(group.first());
  for (std::size_t i = 1; i < group.repeats.size(); ++i)
    keys.back().value += " " + group.repeats[i]->name;
  return keys;
}

void add_waiting_sentence(const RunSet& set, Chart& chart) {
  std::string text = waiting_text(set);
  if (text.empty()) return;
  text.front() = 'C';
  chart.caption.push_back(text + ".");
}

std::vector<std::string> labels_of(const std::vector<const RunGroup*>& groups,
                                   const std::vector<Trait>& traits) {
  std::vector<std::string> labels;
  for (const RunGroup* group : groups) {
    std::string label;
    for (const Trait trait : traits)
      if (says_something(groups, trait))
        label += (label.empty() ? "" : ", ") + trait_text(group->first(), trait);
    labels.push_back(label);
  }
  return told_apart(labels, groups, ", ", " ({})");
}

std::map<PanelKey, std::vector<const RunGroup*>> by_panel(const std::vector<RunGroup>& groups) {
  std::map<PanelKey, std::vector<const RunGroup*>> panels;
  for (const RunGroup& group : groups)
    panels[{group.first().model, group.first().ranks}].push_back(&group);
  return panels;
}

ChartPanel side_by_side(std::string title, std::vector<const RunGroup*>& groups) {
  constexpr std::size_t kMostCells = 24, kMostUpright = 4;
  ChartPanel panel{std::move(title), "", {}};
  if (groups.size() > kMostCells) {
    panel.subtitle = fmt::format("{} more not shown", groups.size() - kMostCells);
    groups.resize(kMostCells);
  }
  panel.slanted = groups.size() > kMostUpright;
  for (const std::string& name : labels_of(groups, {Trait::kMode, Trait::kBatchAlone}))
    panel.x_ticks.push_back({static_cast<double>(panel.x_ticks.size() + 1), name});
  return panel;
}

std::vector<ChartTick> number_ticks(const std::set<double>& numbers) {
  std::vector<ChartTick> ticks;
  for (const double number : numbers)
    ticks.push_back({number, fmt::format("{:.0f}", number)});
  return ticks;
}

bool CellLines::add(const std::vector<std::string>& key, const RunGroup& group,
                    const ChartPoint& point) {
  auto line = std::ranges::find(lines_, key, &Line::key);
  if (line == lines_.end() && lines_.size() == most_) {
    left_out_.insert(key);
    return false;
  }
  if (line == lines_.end()) line = lines_.insert(lines_.end(), {key, &group, {}});
  line->points.push_back(point);
  return true;
}

std::string CellLines::left_out_text() const {
  return left_out_.empty()
             ? ""
             : count_text(static_cast<std::int64_t>(left_out_.size()), "more line") + " not shown";
}

std::set<double> CellLines::places() const {
  std::set<double> places;
  for (const Line& line : lines_)
    for (const ChartPoint& point : line.points)
      places.insert(point.x);
  return places;
}

std::vector<ChartSeries> CellLines::series(const std::vector<Trait>& traits) const {
  std::vector<const RunGroup*> groups = each(lines_, &Line::first);
  const auto labels = labels_of(groups, traits);
  std::vector<ChartSeries> all;
  ModeDashes dashes;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const std::string& mode = groups[i]->first().mode;
    all.push_back({labels[i], Mark::kLinePoints, mode_color(mode), dashes.next(mode), 2,
                   by_place(lines_[i].points), group_keys(*groups[i])});
  }
  return all;
}

std::vector<ChartPoint> by_place(std::vector<ChartPoint> points) {
  std::ranges::stable_sort(points, {}, &ChartPoint::x);
  return points;
}

}  // namespace gradsync::report
