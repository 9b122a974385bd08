// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/tables/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/experiments.h"
#include "analysis/figures/run_group.h"
#include "analysis/tables/columns.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "record/row_figures.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

const RunGroup* same_cell(const RunGroup& group, const std::vector<RunGroup>& groups) {
  const auto key = cell_key(group.first());
  const auto found = std::ranges::find_if(
      groups, [&](const RunGroup& other) { return cell_key(other.first()) == key; });
  return found == groups.end() ? nullptr : &*found;
}

ComparedCell compared(const std::string& name, const RunGroup* a, const RunGroup* b,
                      const RunSpread& spread) {
  const auto time = [](const RunGroup* group) {
    return group == nullptr ? Estimate{}
                            : median_estimate(steady_values(*group, Phase::kIteration));
  };
  const Estimate time_a = time(a), time_b = time(b);
  ComparedCell cell{{name, a != nullptr, b != nullptr, time_a.value, time_b.value},
                    a,
                    b,
                    time_a.count,
                    time_b.count,
                    spread};
  if (cell.both()) cell.ratio = time_ratio(*b, *a);
  if (cell.ratio.jobs > 0) {  // per as many images, as the ratio is
    cell.a /= worth_of(a->first());
    cell.b /= worth_of(b->first());
  }
  cell.difference = difference_of(cell.ratio, spread);
  return cell;
}

/// By model, the larger one.
RunSpreads spreads_of_both(const std::vector<RunGroup>& a, const std::vector<RunGroup>& b) {
  RunSpreads spreads = run_spreads(a);
  for (const auto& [model, spread] : run_spreads(b))
    if (spread.known() && !(spread.factor <= spreads[model].factor)) spreads[model] = spread;
  return spreads;
}

bool of_one_experiment(const RunGroup& a, const RunGroup& b) {
  const std::string job = experiment_id(a.first());
  return !job.empty() && experiment_id(b.first()) == job;
}

}  // namespace

bool Compared::fails(double threshold) const {
  return may_be_slower(difference) &&
         (is_rate ? ratio.value < 1 - threshold : ratio.value > 1 + threshold);
}

bool may_be_slower(Difference difference) {
  return difference == Difference::kSlower || difference == Difference::kOneRunEach ||
         difference == Difference::kTooFew;
}

std::string Compared::verdict() const {
  if (!in_b) return "only in A";
  if (!in_a) return "only in B";
  return difference_text(difference);
}

std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b) {
  // Named together, so that different cells of A and B have different names.
  std::vector<const RunGroup*> all = pointers_to(a);
  for (const RunGroup& group : b)
    if (same_cell(group, a) == nullptr) all.push_back(&group);
  const auto names = cell_names(all);
  if (a.size() == 1 && b.size() == 1 && all.size() == 2 && of_one_experiment(a[0], b[0]))
    return {compared(names[1] + ".against." + names[0], all[0], all[1], {})};
  RunSpreads spreads = spreads_of_both(a, b);
  std::vector<ComparedCell> cells;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool only_b = i >= a.size();
    cells.push_back(compared(names[i], only_b ? nullptr : all[i],
                             only_b ? all[i] : same_cell(*all[i], b),
                             spreads[all[i]->first().model]));
  }
  return cells;
}

std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells) {
  std::vector<std::string> lines;
  for (const ComparedCell& cell : cells) {
    if (!cell.both()) continue;
    for (const RunDifference& difference :
         differences(cell.group_a->first(), cell.group_b->first())) {
      std::string line = fmt::format("{}: '{}' in A, '{}' in B", difference.what,
                                     difference.value_of_one, difference.value_of_other);
      if (!contains(lines, line)) lines.push_back(std::move(line));
    }
  }
  return lines;
}

namespace {

/// Calls of one link_name, a start a file.
struct NamedRows {
  std::string name;
  CalibrationRow row;
  double ranks = 0;
  StartTimes times;

  double busbw_Bps() const {
    return busbw(row.kind, static_cast<double>(row.bytes), ranks, median(times.values_s));
  }
};

std::string link_name(const CalibrationRow& row, std::size_t ranks) {
  std::string size = format_bytes(row.bytes);
  std::erase(size, ' ');
  if (parsed_or<std::int64_t>(parse_size, size, -1) != row.bytes)
    size = fmt::format("{}B", row.bytes);  // 1.04 MiB is no 1 MiB
  return fmt::format("{}.{}.{}.n{}.{}{}", collective_name(row.kind), row.transport, row.cadence,
                     ranks, size, row.type == kFloatType ? "" : "." + row.type);
}

void add_rows(const RunReader& file, std::vector<NamedRows>& all) {
  std::map<std::string, std::vector<double>> of_file;
  for (const CalibrationRow& row : file.calibration()) {
    if (!usable(row)) continue;
    const std::string name = link_name(row, file.ranks());
    of_file[name].push_back(row.median_s);
    if (!contains(all, name, &NamedRows::name))
      all.push_back({name, row, static_cast<double>(file.ranks()), {}});
  }
  for (auto& [name, times_s] : of_file)
    std::ranges::find(all, name, &NamedRows::name)->times.add(std::move(times_s));
}

std::vector<NamedRows> link_rows(const RunSet& set) {
  std::vector<NamedRows> all;
  for (const Run& run : set.runs)
    if (is_calibration_file(*run.reader)) add_rows(*run.reader, all);
  for (const CalibrationFile& file : set.calibrations)
    add_rows(*file.reader, all);
  // Nothing moves between the ranks of a job of one.
  std::erase_if(all, [](const NamedRows& rows) { return !std::isfinite(rows.busbw_Bps()); });
  return all;
}

}  // namespace

std::vector<Compared> compare_links(const RunSet& a, const RunSet& b) {
  const auto of_a = link_rows(a), of_b = link_rows(b);
  std::vector<Compared> links;
  for (const NamedRows& one : of_a) {
    const double busbw_a = one.busbw_Bps();
    Compared& link = links.emplace_back(
        Compared{one.name, busbw_a > 0, false, busbw_a, kNotMeasured, /*is_rate=*/true});
    const auto other = std::ranges::find(of_b, one.name, &NamedRows::name);
    if (other == of_b.end()) continue;
    link.b = other->busbw_Bps();
    link.in_b = link.b > 0;
    link.difference = difference_of(ratio_over_starts(other->times, one.times), {});
    link.ratio = ratio_over_starts(one.times, other->times);
  }
  for (const NamedRows& other : of_b)
    if (!contains(of_a, other.name, &NamedRows::name))
      links.push_back({other.name, false, true, kNotMeasured, other.busbw_Bps(), true});
  return links;
}

namespace {

/// The ratio, what its interval is over, and the verdict.
TableColumns<Compared> ratio_columns(const char* formula, const char* dataset, const char* ends,
                                     double threshold) {
  using Row = Compared;
  return {{"ratio", "B/A", formula, dataset, Ends{ends},
           [](const Row& row, End end) { return Cell::of(row.ratio.*end, 3); }, 0},
          {"ratio_over", "over", kLabel, [](const Row& row) { return row.ratio.basis; }},
          {"verdict", "verdict",
           [=](const Row& row) {
             return row.verdict() + (row.fails(threshold) ? " (beyond the threshold)" : "");
           },
           0}};
}

TableColumns<ComparedCell> cell_comparison_columns(double threshold) {
  using Row = ComparedCell;
  const std::string data = "/time/iteration";
  const auto time = [](double time_s, const Row& row) {
    return ms_cell(time_s, ms_decimals(1e3 * std::fmax(row.a, row.b)));
  };
  TableColumns<Row> columns = {
      {"cell", "cell", kLabel, &Row::name},
      {"ranks", "ranks", "ranks of the run", "/topology/rank",
       [](const Row& row) { return known_count(row.any().first().ranks); }},
      {"batch_per_rank", "batch/rank", "global batch / (ranks x accumulation)",
       "/config/batch-per-rank",
       [](const Row& row) { return known_count(row.any().first().batch_per_rank); }},
      {"a_iterations", "n of A", "steady iterations of all repeats", "/iteration/number",
       [](const Row& row) { return count_cell(row.iterations_a); }, 2},
      {"b_iterations", "n of B", "steady iterations of all repeats", "/iteration/number",
       [](const Row& row) { return count_cell(row.iterations_b); }, 2},
      {"a_median_ms", "A ms", "median over n of the slowest rank", data,
       [=](const Row& row) { return time(row.a, row); }},
      {"b_median_ms", "B ms", "median over n of the slowest rank", data,
       [=](const Row& row) { return time(row.b, row); }}};
  return columns.add(ratio_columns("time of B / time of A", data.c_str(),
                                   "{} end of the ratio's 95 % interval", threshold));
}

std::string source(const ComparedCell& cell) {
  if (!cell.both()) return sources_of(cell.any());
  return sources_of(*cell.group_a) + ", " + sources_of(*cell.group_b);
}

/// Digits behind the point of GB/s: three, or as many as show three digits of a small bandwidth.
int gb_decimals(double bandwidth_Bps) {
  const double rate = bandwidth_Bps / kGB;
  return rate > 0 ? std::clamp(2 - static_cast<int>(std::floor(std::log10(rate))), 3, 9) : 3;
}

TableColumns<Compared> link_comparison_columns(double threshold) {
  using Row = Compared;
  const char* data = "/calibration/median";
  const auto busbw = [=](const char* name, const char* head, double Row::*side) {
    return RowColumn<Row>(name, head, "busbw of the median call", data, [=](const Row& row) {
      return Cell::of(row.*side / kGB, gb_decimals(row.*side));
    });
  };
  TableColumns<Row> columns = {{"collective", "collective", kLabel, &Row::name},
                               busbw("a_busbw_GBps", "A GB/s", &Row::a),
                               busbw("b_busbw_GBps", "B GB/s", &Row::b)};
  return columns.add(
      ratio_columns("busbw of B / busbw of A", data, "{} end of its 95 % interval", threshold));
}

/// Whether A and B are contenders of one job, one of which takes more images in an iteration.
bool of_other_batches(const ComparedCell& cell) {
  return cell.ratio.jobs > 0 && worth_of(cell.group_a->first()) != worth_of(cell.group_b->first());
}

/// What decides without an interval.
constexpr const char* kGateNote =
    "without an interval the ratio alone decides, unless runs of the same work differ as much: one "
    "start each cannot tell a difference from that between two starts (10 % and more)";

}  // namespace

Table link_comparison_table(const std::vector<Compared>& links, double threshold) {
  const auto columns = link_comparison_columns(threshold);
  Table table = columns.table("compare-links", "Bandwidth of collectives in B against A", {});
  for (const Compared& link : links)
    table.add(columns.cells(link));
  table.notes = {
      fmt::format("a size fails if it is slower and the ratio below {:.6g}; {}", 1 - threshold,
                  kGateNote),
      "95 % interval of the ratio: over 3 or more files a side (Welch, of the logarithms of their "
      "medians); one start each: no interval, repeat gradsync-calibrate; the cycles of a file (-N) "
      "are of one start"};
  return table;
}

Table comparison_table(const std::vector<ComparedCell>& cells, double threshold) {
  const auto columns = cell_comparison_columns(threshold);
  Table table = columns.table("compare", "Iteration times of B against A", {});
  for (const ComparedCell& cell : cells)
    table.add(columns.cells(cell), source(cell));
  for (const std::string& line : different_circumstances(cells))
    table.notes.push_back("A and B differ in " + line);
  table.notes.push_back(fmt::format("a cell fails if it is slower and the ratio above {:.6g}; {}",
                                    1 + threshold, kGateNote));
  std::set<std::string> spreads;
  for (const ComparedCell& cell : cells)
    if (cell.both() && !cell.ratio.has_interval() && cell.spread.known())
      spreads.insert(spread_text(cell.spread, cell.group_a->first().model));
  table.notes.insert(table.notes.end(), spreads.begin(), spreads.end());
  if (std::ranges::any_of(cells, of_other_batches))
    table.notes.emplace_back(
        "times are per as many images as an iteration of the job's reference has");
  table.notes.emplace_back(kRatioNote);
  table.notes.emplace_back(
      "an iteration counts as its slowest rank; steady iterations of all repeats of a cell "
      "(docs/numbers.md)");
  return table;
}

namespace {

/// Result of a cell or of a size of a collective, whose numbers are in `unit`.
JunitCase case_of(const Compared& one, const char* unit, double threshold) {
  if (!one.both() || !std::isfinite(one.ratio.value))
    return {one.name, JunitCase::Result::kSkipped, one.verdict(), ""};
  const std::string interval = one.ratio.has_interval() ? fmt::format("95 %: {:.4f} to {:.4f}, ",
                                                                      one.ratio.low, one.ratio.high)
                                                        : "";
  return {one.name, one.fails(threshold) ? JunitCase::Result::kFailed : JunitCase::Result::kPassed,
          fmt::format("B/A = {:.4f} ({}{}), A {:.6g} {}, B {:.6g} {}, {}", one.ratio.value,
                      interval, one.ratio.basis, one.a, unit, one.b, unit, one.verdict()),
          "threshold"};
}

}  // namespace

std::string junit_text(const std::vector<ComparedCell>& cells, const std::vector<Compared>& links,
                       double threshold) {
  std::vector<JunitCase> cases =
      each(cells, [&](const ComparedCell& cell) { return case_of(cell, "s", threshold); });
  for (const Compared& link : links)
    cases.push_back(case_of(link, "B/s", threshold));
  return junit_suite("gradsync-report compare", "gradsync.compare", cases);
}

}  // namespace gradsync::report
