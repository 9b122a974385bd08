// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

/// One comparison of a cell on one kind of time.
struct SpeedupRow : CellRow {
  std::string scaling = "-", base = "none";
  TimeBasis basis = TimeBasis::kIteration;
  std::size_t count = 0;
  double time_s = kNotMeasured, base_s = kNotMeasured;
  Estimate speedup = {}, efficiency = {};
  std::string remark = {};

  bool super_linear() const {
    constexpr double kRoundedUp = 1 + 1e-9;
    return efficiency.value > kRoundedUp;
  }
};

TableColumns<SpeedupRow> speedup_columns(const GroupLabels& labels, bool short_of_cores) {
  using Row = SpeedupRow;
  const std::string data = "/time/iteration, /epoch/training_time, /epoch/running_time";
  const char* interval = "95 % interval of the ratio over 3 or more starts a side";
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"scaling", "scaling", kLabel, &Row::scaling, 0},
       {"base", "base", kLabel, &Row::base, 2},
       {"basis", "time of", kLabel,
        [](const Row& row) { return std::string(time_basis_name(row.basis)); }},
       {"count", "n", "values that the time is the median of", data,
        [](const Row& row) { return count_cell(row.count); }, 3},
       {"time_s", "T(n) s", "median over steady iterations or whole epochs, slowest rank", data,
        [](const Row& row) { return significant_cell(row.time_s); }},
       {"base_time_s", "T(base) s", "the same of the base", data,
        [](const Row& row) { return significant_cell(row.base_s); }, 3},
       {"speedup", "speedup",
        "T(base)/T(n); of an iteration of weak scaling, which has n/base times the images, n/base "
        "x T(base)/T(n)",
        data, Ends{interval}, [](const Row& row, End end) { return Cell::of(row.speedup.*end, 3); },
        0},
       {"efficiency_percent", "efficiency %", "speedup x base/n", data, Ends{interval},
        [](const Row& row, End end) { return percent_cell(row.efficiency.*end); }, 0},
       {"ratio", "T(base)/T(n)", "T(base)/T(n)", data,
        [](const Row& row) { return Cell::of(report::speedup(row.base_s, row.time_s), 3); }, 3},
       {"remark", "remark", &Row::remark, short_of_cores ? 0 : 2}});
  return columns.add(name_column());
}

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

/// "oversubscribed", "shared host in the base", where times include waiting for a core.
std::string short_of_cores(const Comparison& one) {
  const std::string_view here = core_shortage(*one.group), there = core_shortage(*one.base);
  if (!here.empty()) return std::string(here);
  return there.empty() ? "" : fmt::format("{} in the base", there);
}

Estimate scaled(const Estimate& one, double factor) {
  return {one.value * factor, one.low * factor, one.high * factor, one.count};
}

SpeedupRow speedup_row(const CellRow& label, const Comparison& one, TimeBasis basis,
                       TimesOf& times) {
  const auto& here = times(*one.group)[basis];
  const auto& there = times(*one.base)[basis];
  SpeedupRow row{label, std::string(scaling_name(one.scaling)), base_text(*one.base), basis};
  row.count = here.values_s.size();
  row.time_s = median(here.values_s);
  row.base_s = median(there.values_s);
  const Estimate ratio = one.itself() ? Estimate{speedup(row.base_s, row.time_s)}
                         : basis == TimeBasis::kIteration
                             ? time_ratio(*one.base, *one.group).estimate()
                             : ratio_over_starts(there, here).estimate();
  const auto more_ranks =
      static_cast<double>(one.group->first().ranks) / static_cast<double>(one.base->first().ranks);
  const bool more_images = one.scaling == Scaling::kWeak && basis == TimeBasis::kIteration;
  row.speedup = scaled(ratio, more_images ? more_ranks : 1);
  row.efficiency = scaled(ratio, more_images ? 1 : 1 / more_ranks);
  const bool first = times(*one.group).first_epoch_only || times(*one.base).first_epoch_only;
  row.remark =
      remark_of({one.itself() ? "the base itself" : "", short_of_cores(one),
                 !row.super_linear()              ? ""
                 : row.efficiency.low > 1         ? "SUPER-LINEAR"
                 : !row.efficiency.has_interval() ? "super-linear, not tested"
                                                  : "super-linear, not significant",
                 unfairness(one),
                 basis != TimeBasis::kIteration && first ? "first epoch, with its warm-up" : ""});
  return row;
}

/// Adds rows of iterations always; of epochs where both sides hold whole ones. Returns whether one
/// with a core for each thread is super-linear.
bool add_rows(Table& table, const TableColumns<SpeedupRow>& columns, const CellRow& label,
              const Comparison& one, TimesOf& times) {
  bool super_linear = false;
  for (const TimeBasis basis : {TimeBasis::kIteration, TimeBasis::kTraining, TimeBasis::kRunning}) {
    if (basis != TimeBasis::kIteration &&
        (times(*one.group)[basis].values_s.empty() || times(*one.base)[basis].values_s.empty()))
      continue;
    const SpeedupRow row = speedup_row(label, one, basis, times);
    super_linear |= row.super_linear() && short_of_cores(one).empty();
    table.add(columns.cells(row), one.itself()
                                      ? sources_of(*one.group)
                                      : sources_of(*one.group) + ", " + sources_of(*one.base));
  }
  return super_linear;
}

SpeedupRow row_without_base(const CellRow& label, const std::vector<double>& times_s) {
  SpeedupRow row{label};
  row.count = times_s.size();
  row.time_s = median(times_s);
  row.remark = "no base among the runs";
  return row;
}

std::vector<std::string> speedup_notes() {
  return {
      "strong: the global batch is the base's; weak: the batch per rank is the base's; determined "
      "from the runs. base: its mode, ranks x images per rank; 1 rank without exchange (none), and "
      "the "
      "mode itself on its fewest ranks",
      "T: median; of iterations (slowest rank, warm-up left out) and, where both runs hold whole "
      "epochs, of training time (without waiting for data) and running time (wall time without "
      "evaluation), the first epoch left out where there are more; n: values of T(n)",
      "speedup: T(base)/T(n); of an iteration of weak scaling, which has n/base times the images, "
      "n/base x T(base)/T(n), the scaled or \"weak\" speedup of published reports. An epoch has "
      "the "
      "same images in both kinds of scaling. efficiency: speedup x base/n",
      kRatioNote};
}

constexpr const char* kSuperLinearNote =
    "super-linear (efficiency above 100 %) is shown, not cut. Likely causes: a base that differs "
    "(threads, clocks, another day), a working set that fits the caches only when divided, a batch "
    "per rank that suits the kernels better, warm-up in the base";

}  // namespace

Table make_speedup_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const auto columns = speedup_columns(
      labels, std::ranges::any_of(
                  groups, [](const RunGroup& group) { return !core_shortage(group).empty(); }));
  TimesOf times;
  Table table =
      columns.table("speedup", "Speedup and efficiency, strong and weak", speedup_notes());
  const auto all = comparisons(groups);
  bool super_linear = false;
  for (const RunGroup& group : groups) {
    const CellRow label = labels.row(group);
    const std::size_t before = table.rows.size();
    for (const Comparison& one : all)
      if (one.group == &group) super_linear |= add_rows(table, columns, label, one, times);
    if (table.rows.size() == before)
      table.add(
          columns.cells(row_without_base(label, times(group)[TimeBasis::kIteration].values_s)),
          sources_of(group));
  }
  if (super_linear) table.notes.emplace_back(kSuperLinearNote);
  return table;
}

}  // namespace gradsync::report
