#include "analysis/model/measured_cell.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/split_figures.h"
#include "analysis/read/columns.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// What makes cells one scaling law, beside ranks and batch. `between` counts on several ranks
/// only.
struct FamilyKey {
  std::string setting, between;
  std::string text() const { return setting + between; }
};

FamilyKey family_key(const Run& run) {
  using enum OptionRole;
  static const auto of_setting = options_of({kMode, kStep, kMachine});
  static const auto of_between = options_of({kBetweenRanks});
  return {fmt::format("{}, {}|{}{}", run.model, run.mode,
                      fmt::join(option_values(run, of_setting), "|"),
                      is_known_work(run) ? "" : "|" + run.path.string()),
          fmt::format("|{}", fmt::join(option_values(run, of_between), "|"))};
}

/// A cell of one rank belongs to the family of several ranks with its own settings, else to the
/// first with the same ones but for what is between ranks, else to its own.
std::string family_of(const Run& run, const std::vector<RunGroup>& groups) {
  const FamilyKey own = family_key(run);
  if (run.ranks > 1) return own.text();
  std::string found;
  for (const RunGroup& group : groups) {
    if (group.first().ranks < 2) continue;
    const FamilyKey other = family_key(group.first());
    if (other.text() == own.text()) return own.text();
    if (other.setting == own.setting && found.empty()) found = other.text();
  }
  return found.empty() ? own.text() : found;
}

std::vector<double> stalled(const RunGroup& group, const std::vector<double>& exposed_s) {
  if (!waits_apart(*group.first().reader)) return exposed_s;
  std::vector<double> sums_s = steady_rank_means(group, Phase::kWait);
  std::transform(sums_s.begin(), sums_s.end(), exposed_s.begin(), sums_s.begin(), std::plus<>());
  return sums_s;
}

MeasuredCell measured_cell(const RunGroup& group, const std::vector<RunGroup>& groups) {
  MeasuredCell cell{group, family_of(group.first(), groups), {}, {}, {}, {}};
  cell.iteration_s = steady_values(group, Phase::kIteration);
  cell.compute_s = steady_rank_means(group, Phase::kCompute);
  cell.exposed_s = steady_rank_means(group, Phase::kExposed);
  cell.stalled_s = stalled(group, cell.exposed_s);
  cell.median_iteration_s = median(cell.iteration_s);
  cell.median_compute_s = median(cell.compute_s);
  cell.median_exposed_s = median(cell.exposed_s);
  const double mean_iteration_s = mean(steady_rank_means(group, Phase::kIteration));
  cell.exposed_share = mean(cell.exposed_s) / mean_iteration_s;
  cell.compute_share = mean(cell.compute_s) / mean_iteration_s;
  if (std::all_of(group.repeats.begin(), group.repeats.end(),
                  [](const Run* run) { return waits_apart(*run->reader); }))
    cell.wait_share = mean(steady_rank_means(group, Phase::kWait)) / mean_iteration_s;
  cell.data_share = mean(steady_rank_means(group, Phase::kData)) / mean_iteration_s;
  cell.short_of_cores = !core_shortage(group).empty();
  if (cell.short_of_cores) cell.family += "|short of cores";
  // No scaling law holds for it beside any other cell.
  if (!batch_schedule(group.first()).empty()) cell.family += "|" + group.first().path.string();
  return cell;
}

std::string name_of(const Run& run) {
  return fmt::format("{}, {}, {}, {}", run.model, run.mode, count_text(run.ranks, "rank"),
                     images_text(run));
}

}  // namespace

bool is_steady(const Run& run, std::size_t row) {
  return run.steady.keeps(row);
}

std::vector<double> steady_rank_means(const RunGroup& group, Phase phase) {
  std::vector<double> values;
  for (const Run* run : group.repeats) {
    const std::vector<double> means = mean_over_ranks(run->reader->time(phase));
    for (std::size_t row = 0; row < means.size(); ++row)
      if (is_steady(*run, row)) values.push_back(means[row]);
  }
  return values;
}

std::vector<MeasuredCell> measured_cells(const RunSet& set) {
  std::vector<MeasuredCell> cells;
  const auto groups = group_runs(set);
  std::vector<std::string> names;
  for (const RunGroup& group : groups) {
    cells.push_back(measured_cell(group, groups));
    names.push_back(name_of(group.first()));
  }
  names = told_apart(std::move(names), pointers_to(groups), ", ", " ({})");
  for (std::size_t i = 0; i < cells.size(); ++i)
    cells[i].name = std::move(names[i]);
  return cells;
}

}  // namespace gradsync::report
