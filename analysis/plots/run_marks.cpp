#include "analysis/plots/run_marks.h"

#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/split_figures.h"
#include "base/parse.h"
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
  return std::any_of(groups.begin(), groups.end(), [&](const RunGroup* group) {
    return trait_text(group->first(), trait) != trait_text(groups.front()->first(), trait);
  });
}

}  // namespace

std::string mode_color(const std::string& mode) {
  return std::string(mode_named(mode).color);
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

}  // namespace gradsync::report
