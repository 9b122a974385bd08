#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/scaling.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

constexpr std::uint64_t kSeed = 1;

/// The times of each group, read once.
class TimesOf {
 public:
  const GroupTimes& operator()(const RunGroup& group) {
    const auto known = times_.find(&group);
    if (known != times_.end()) return known->second;
    return times_.emplace(&group, group_times(group)).first->second;
  }

 private:
  std::map<const RunGroup*, GroupTimes> times_;
};

/// One comparison on one kind of time.
struct Figures {
  std::size_t count = 0;
  double time_s = kNotMeasured, base_s = kNotMeasured;
  Estimate speedup;
  Estimate efficiency;
  double weak = kNotMeasured;
};

Estimate scaled(Estimate estimate, double factor) {
  estimate.value *= factor;
  estimate.low *= factor;
  estimate.high *= factor;
  return estimate;
}

/// An iteration of weak scaling has n/base times the images; everything else has the base's.
double efficiency_factor(const Comparison& one, TimeBasis basis) {
  const bool more_images = one.scaling == Scaling::kWeak && basis == TimeBasis::kIteration;
  if (more_images) return 1;
  return static_cast<double>(one.base->first().ranks) /
         static_cast<double>(one.group->first().ranks);
}

Figures speedup_figures_of(const Comparison& one, TimeBasis basis, TimesOf& times) {
  const auto& here = times(*one.group)[basis];
  const auto& there = times(*one.base)[basis];
  Figures figures;
  figures.count = here.size();
  figures.time_s = median(here);
  figures.base_s = median(there);
  figures.speedup = one.itself() ? Estimate{speedup(figures.base_s, figures.time_s), kNotMeasured,
                                            kNotMeasured, here.size()}
                                 : ratio_estimate(there, here, kSeed);
  figures.efficiency = scaled(figures.speedup, efficiency_factor(one, basis));
  const bool published = one.scaling == Scaling::kWeak && basis == TimeBasis::kIteration &&
                         one.base->first().ranks == 1;
  if (published)
    figures.weak =
        weak_speedup(figures.base_s, figures.time_s, static_cast<double>(one.group->first().ranks));
  return figures;
}

std::vector<Column> speedup_columns(const GroupLabels& labels, bool short_of_cores) {
  std::vector<Column> result = labels.columns();
  const std::string data = "/time/iteration, /epoch/training_time, /epoch/running_time";
  const std::string bootstrap =
      "percentile bootstrap of the ratio of medians, 2,000 resamples, "
      "seed 1, 95 %";
  const std::vector<Column> rest = {
      repeats_column(),
      {"scaling", "scaling", true},
      {"base", "base", true, "", "", 2},
      {"basis", "time of", true},
      {"count", "n", false, "values that the time is the median of", data, 3},
      {"time_s", "T(n) s", false, "median over steady iterations or whole epochs, slowest rank",
       data},
      {"base_time_s", "T(base) s", false, "the same of the base", data, 3},
      {"speedup", "T(base)/T(n)", false, "T(base)/T(n)", data},
      {"speedup_low", "low", false, bootstrap, data},
      {"speedup_high", "high", false, bootstrap, data},
      {"efficiency_percent", "efficiency %", false,
       "T(base)/T(n) x base/n; of an iteration of weak scaling T(base)/T(n)", data},
      {"efficiency_low_percent", "low", false, bootstrap, data},
      {"efficiency_high_percent", "high", false, bootstrap, data},
      {"weak_speedup", "N*T(1)/T(N)", false, "N*T(1)/T(N) of iteration times", "/time/iteration",
       3},
      {"remark", "remark", true, "", "", short_of_cores ? 0 : 2},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"scaling", "time_s", "speedup", "efficiency_percent"});
  return result;
}

void append(std::string& text, const std::string& part) {
  if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
}

/// "oversubscribed", "shared host in the base", where times include waiting for a core.
std::string short_of_cores(const Comparison& one) {
  const std::string_view here = core_shortage(*one.group), there = core_shortage(*one.base);
  if (!here.empty()) return std::string(here);
  return there.empty() ? "" : fmt::format("{} in the base", there);
}

std::string super_linear(const Figures& figures) {
  constexpr double kRoundedUp = 1 + 1e-9;
  if (!(figures.efficiency.value > kRoundedUp)) return {};
  return figures.efficiency.low > 1 ? "SUPER-LINEAR" : "super-linear, not beyond its interval";
}

std::string speedup_remark(const Comparison& one, TimeBasis basis, const Figures& figures,
                           TimesOf& times) {
  std::string text;
  if (one.itself()) append(text, "the base itself");
  append(text, short_of_cores(one));
  append(text, super_linear(figures));
  append(text, unfairness(one));
  const bool first = times(*one.group).first_epoch_only || times(*one.base).first_epoch_only;
  if (basis != TimeBasis::kIteration && first) append(text, "first epoch, with its warm-up");
  return text;
}

bool holds(const Comparison& one, TimeBasis basis, TimesOf& times) {
  return !times(*one.group)[basis].empty() && !times(*one.base)[basis].empty();
}

void speedup_add_row(Table& table, const GroupLabels& labels, const Comparison& one,
                     TimeBasis basis, TimesOf& times) {
  const Figures figures = speedup_figures_of(one, basis, times);
  const Estimate& efficiency = figures.efficiency;
  std::vector<Cell> cells = labels.cells(*one.group);
  const std::vector<Cell> rest = {repeats_cell(*one.group),
                                  std::string(scaling_name(one.scaling)),
                                  base_text(*one.base),
                                  std::string(time_basis_name(basis)),
                                  Cell::count(static_cast<double>(figures.count)),
                                  significant_cell(figures.time_s),
                                  significant_cell(figures.base_s),
                                  Cell::of(figures.speedup.value, 3),
                                  Cell::of(figures.speedup.low, 3),
                                  Cell::of(figures.speedup.high, 3),
                                  Cell::of(1e2 * efficiency.value, 1),
                                  Cell::of(1e2 * efficiency.low, 1),
                                  Cell::of(1e2 * efficiency.high, 1),
                                  Cell::of(figures.weak, 3),
                                  speedup_remark(one, basis, figures, times),
                                  group_name_cell(*one.group)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  table.add(std::move(cells), one.itself() ? sources_of(*one.group)
                                           : sources_of(*one.group) + ", " + sources_of(*one.base));
}

/// Iterations always; epochs where both sides hold whole ones.
void add_rows(Table& table, const GroupLabels& labels, const Comparison& one, TimesOf& times) {
  for (const TimeBasis basis : {TimeBasis::kIteration, TimeBasis::kTraining, TimeBasis::kRunning})
    if (basis == TimeBasis::kIteration || holds(one, basis, times))
      speedup_add_row(table, labels, one, basis, times);
}

void add_without_base(Table& table, const GroupLabels& labels, const RunGroup& group,
                      TimesOf& times) {
  const auto& values = times(group)[TimeBasis::kIteration];
  std::vector<Cell> cells = labels.cells(group);
  cells.push_back(repeats_cell(group));
  cells.insert(cells.end(),
               {Cell("-"), Cell("none"), Cell("iteration"),
                Cell::count(static_cast<double>(values.size())), significant_cell(median(values))});
  cells.insert(cells.end(), 8, Cell::of(kNotMeasured, 3));
  cells.emplace_back("no base among the runs");
  cells.push_back(group_name_cell(group));
  table.add(std::move(cells), sources_of(group));
}

std::vector<std::string> speedup_notes() {
  return {
      "strong: the global batch is the base's; weak: the batch per rank is the base's; determined "
      "from the runs. Bases: 1 rank without exchange (none) and the mode itself on its fewest "
      "ranks",
      "T: median; of iterations (slowest rank, warm-up left out) and, where both runs hold whole "
      "epochs, of training time (without waiting for data) and running time (wall time without "
      "evaluation), the first epoch left out where there are more; n: values of T(n)",
      "efficiency: T(base)/T(n) x base/n; for an iteration of weak scaling, which has n/base times "
      "the images, T(base)/T(n). An epoch has the same images in both kinds of scaling",
      "N*T(1)/T(N), the \"weak speedup\" of published reports: of iterations of weak scaling only; "
      "an epoch already has N times fewer iterations, and N would count twice",
      "low, high: 95 % percentile bootstrap of the ratio of medians (2,000 resamples, seed 1); n/a "
      "below 6 values"};
}

const char* kSuperLinearNote =
    "super-linear (efficiency above 100 %) is shown, not cut. Likely causes: a base that differs "
    "(threads, clocks, another day), a working set that fits the caches only when divided, a batch "
    "per rank that suits the kernels better, warm-up in the base";

bool any_super_linear(const Table& table) {
  return std::any_of(table.rows.begin(), table.rows.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(), [](const Cell& cell) {
      return cell.text.starts_with("SUPER-LINEAR") || cell.text.starts_with("super-linear");
    });
  });
}

bool any_short_of_cores(const std::vector<RunGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(),
                     [](const RunGroup& group) { return !core_shortage(group).empty(); });
}

}  // namespace

Table make_speedup_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  TimesOf times;
  Table table{"speedup",
              "Speedup and efficiency, strong and weak",
              speedup_notes(),
              speedup_columns(labels, any_short_of_cores(groups)),
              {}};
  const auto all = comparisons(groups);
  for (const RunGroup& group : groups) {
    bool compared = false;
    for (const Comparison& one : all) {
      if (one.group != &group) continue;
      add_rows(table, labels, one, times);
      compared = true;
    }
    if (!compared) add_without_base(table, labels, group, times);
  }
  if (any_super_linear(table)) table.notes.emplace_back(kSuperLinearNote);
  return table;
}

}  // namespace gradsync::report
