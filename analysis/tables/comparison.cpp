// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/tables/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/read/run_set.h"
#include "analysis/tables/columns.h"
#include "base/parse.h"
#include "base/table.h"
#include "record/row_figures.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

const RunGroup* same_cell(const RunGroup& group, const std::vector<RunGroup>& groups) {
  const auto key = cell_key(group.first());
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const RunGroup& other) {
    return cell_key(other.first()) == key;
  });
  return found == groups.end() ? nullptr : &*found;
}

ComparedCell compared(const std::string& name, const RunGroup* a, const RunGroup* b,
                      std::uint64_t seed) {
  const auto times = [](const RunGroup* group) {
    return group == nullptr ? std::vector<double>{} : steady_values(*group, Phase::kIteration);
  };
  const auto times_a = times(a), times_b = times(b);
  return {name,
          a,
          b,
          median_estimate(times_a),
          median_estimate(times_b),
          ratio_estimate(times_b, times_a, seed)};
}

}  // namespace

bool ComparedCell::fails(double threshold) const {
  return both() && difference_of(ratio) == Difference::kSlower && ratio.value > 1 + threshold;
}

std::string ComparedCell::verdict() const {
  if (b == nullptr) return "only in A";
  if (a == nullptr) return "only in B";
  return difference_text(difference_of(ratio));
}

std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b, std::uint64_t seed) {
  // Named together, so that different cells of A and B have different names.
  std::vector<const RunGroup*> all = pointers_to(a);
  for (const RunGroup& group : b)
    if (same_cell(group, a) == nullptr) all.push_back(&group);
  const auto names = cell_names(all);
  std::vector<ComparedCell> cells;
  for (std::size_t i = 0; i < all.size(); ++i)
    cells.push_back(i < a.size() ? compared(names[i], all[i], same_cell(*all[i], b), seed)
                                 : compared(names[i], nullptr, all[i], seed));
  return cells;
}

std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells) {
  std::vector<std::string> lines;
  for (const ComparedCell& cell : cells) {
    if (!cell.both()) continue;
    for (const RunDifference& difference : differences(cell.a->first(), cell.b->first())) {
      std::string line = fmt::format("{}: '{}' in A, '{}' in B", difference.what,
                                     difference.value_of_one, difference.value_of_other);
      if (std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(std::move(line));
    }
  }
  return lines;
}

namespace {

using LinkRows = std::vector<CalibrationRow>;
/// By the name of ComparedLink, with the ranks.
struct NamedRows {
  std::string name;
  double ranks = 0;
  LinkRows rows;
};

std::string link_name(const CalibrationRow& row, std::size_t ranks) {
  std::string size = format_bytes(row.bytes);
  std::erase(size, ' ');
  return fmt::format("{}.{}.{}.n{}.{}{}", collective_name(row.kind), row.transport, row.cadence,
                     ranks, size, row.type == kFloatType ? "" : "." + row.type);
}

void add_rows(const RunReader& file, std::vector<NamedRows>& all) {
  for (const CalibrationRow& row : file.calibration()) {
    if (!usable(row)) continue;
    const std::string name = link_name(row, file.ranks());
    auto known = std::ranges::find(all, name, &NamedRows::name);
    if (known == all.end())
      known = all.insert(all.end(), {name, static_cast<double>(file.ranks()), {}});
    known->rows.push_back(row);
  }
}

std::vector<NamedRows> link_rows(const RunSet& set) {
  std::vector<NamedRows> all;
  for (const Run& run : set.runs)
    if (is_calibration_file(*run.reader)) add_rows(*run.reader, all);
  for (const CalibrationFile& file : set.calibrations)
    add_rows(*file.reader, all);
  return all;
}

constexpr std::size_t kFewest = 6;
constexpr double kTwoSided = 1.96;       // of a normal distribution, 95 %
constexpr double kMedianError = 1.2533;  // √(π/2): of a median against that of a mean

std::vector<double> medians_s(const LinkRows& rows) {
  std::vector<double> values;
  for (const CalibrationRow& row : rows)
    values.push_back(row.median_s);
  return values;
}

/// Relative half-width of the median's interval; NaN without deviation or calls.
double relative_error(const LinkRows& rows, double median_s) {
  const CalibrationRow& row = rows.front();
  double calls = 0;
  for (const CalibrationRow& one : rows)
    calls += static_cast<double>(one.repetitions);
  if (calls < static_cast<double>(kFewest)) return kNotMeasured;
  return kTwoSided * kMedianError * row.deviation_s / median_s / std::sqrt(calls);
}

Estimate with_error(double value, double relative, std::size_t count) {
  return {value, value * std::exp(-relative), value * std::exp(relative), count};
}

Estimate time_of(const LinkRows& rows) {
  const Estimate median = median_estimate(medians_s(rows));
  if (median.has_interval()) return median;
  return with_error(median.value, relative_error(rows, median.value), rows.size());
}

/// Bandwidth of `factor` bytes in these times.
Estimate inverse(const Estimate& time, double factor) {
  return {factor / time.value, factor / time.high, factor / time.low, time.count};
}

Estimate busbw_of(const NamedRows& side) {
  const CalibrationRow& row = side.rows.front();
  return inverse(time_of(side.rows),
                 busbw(row.kind, static_cast<double>(row.bytes), side.ranks, 1));
}

Estimate busbw_ratio(const LinkRows& a, const LinkRows& b, std::uint64_t seed) {
  const auto times_a = medians_s(a), times_b = medians_s(b);
  if (std::min(a.size(), b.size()) >= kFewest)
    return inverse(ratio_estimate(times_b, times_a, seed), 1);
  const double one = median_estimate(times_a).value, other = median_estimate(times_b).value;
  return with_error(one / other, std::hypot(relative_error(a, one), relative_error(b, other)),
                    std::min(a.size(), b.size()));
}

}  // namespace

bool ComparedLink::fails(double threshold) const {
  return both() && difference_of(inverse(ratio, 1)) == Difference::kSlower &&
         ratio.value < 1 - threshold;
}

std::string ComparedLink::verdict() const {
  if (busbw_b.count == 0) return "only in A";
  if (busbw_a.count == 0) return "only in B";
  return difference_text(difference_of(inverse(ratio, 1)));
}

std::vector<ComparedLink> compare_links(const RunSet& a, const RunSet& b, std::uint64_t seed) {
  const auto of_a = link_rows(a), of_b = link_rows(b);
  std::vector<ComparedLink> links;
  for (const NamedRows& one : of_a) {
    ComparedLink& link = links.emplace_back();
    link.name = one.name;
    link.busbw_a = busbw_of(one);
    const auto other = std::ranges::find(of_b, one.name, &NamedRows::name);
    if (other == of_b.end()) continue;
    link.busbw_b = busbw_of(*other);
    link.ratio = busbw_ratio(one.rows, other->rows, seed);
  }
  for (const NamedRows& other : of_b)
    if (std::ranges::find(of_a, other.name, &NamedRows::name) == of_a.end())
      links.push_back({other.name, {}, busbw_of(other), {}});
  return links;
}

namespace {

std::string verdict_text(const std::string& verdict, bool fails) {
  return verdict + (fails ? " (beyond the threshold)" : "");
}

TableColumns<ComparedCell> cell_comparison_columns(double threshold) {
  using Row = ComparedCell;
  const std::string data = "/time/iteration";
  const auto run_of = [](const Row& row) -> const Run& {
    return (row.a == nullptr ? row.b : row.a)->first();
  };
  const auto time = [](double time_s, const Row& row) {
    return ms_cell(time_s, ms_decimals(1e3 * std::fmax(row.time_a.value, row.time_b.value)));
  };
  return {{"cell", "cell", kLabel, [](const Row& row) { return row.name; }},
          {"ranks", "ranks", "ranks of the run", "/topology/rank",
           [=](const Row& row) { return known_count(run_of(row).ranks); }},
          {"batch_per_rank", "batch/rank", "global batch / (ranks x accumulation)",
           "/config/batch-per-rank",
           [=](const Row& row) { return known_count(run_of(row).batch_per_rank); }},
          {"a_iterations", "n of A", "steady iterations of all repeats", "/iteration/number",
           [](const Row& row) { return count_cell(row.time_a.count); }, 2},
          {"b_iterations", "n of B", "steady iterations of all repeats", "/iteration/number",
           [](const Row& row) { return count_cell(row.time_b.count); }, 2},
          {"a_median_ms", "A ms", "median over n of the slowest rank", data,
           [=](const Row& row) { return time(row.time_a.value, row); }},
          {"b_median_ms", "B ms", "median over n of the slowest rank", data,
           [=](const Row& row) { return time(row.time_b.value, row); }},
          {"ratio", "B/A", "median of B / median of A", data,
           [](const Row& row) { return Cell::of(row.ratio.value, 3); }, 0},
          {"ratio_low", "low", "lower end of the ratio's 95 % bootstrap interval", data,
           [](const Row& row) { return Cell::of(row.ratio.low, 3); }},
          {"ratio_high", "high", "upper end of the ratio's 95 % bootstrap interval", data,
           [](const Row& row) { return Cell::of(row.ratio.high, 3); }},
          {"verdict", "verdict",
           [=](const Row& row) { return verdict_text(row.verdict(), row.fails(threshold)); }, 0}};
}

std::string source(const ComparedCell& cell) {
  if (!cell.both()) return sources_of(cell.a == nullptr ? *cell.b : *cell.a);
  return sources_of(*cell.a) + ", " + sources_of(*cell.b);
}

/// Digits behind the point of GB/s: three, or as many as show three digits of a small bandwidth.
int gb_decimals(double bandwidth_Bps) {
  const double rate = bandwidth_Bps / kGB;
  return rate > 0 ? std::clamp(2 - static_cast<int>(std::floor(std::log10(rate))), 3, 9) : 3;
}

TableColumns<ComparedLink> link_comparison_columns(double threshold) {
  using Row = ComparedLink;
  const auto busbw = [](const char* name, const char* head, const char* formula,
                        Estimate Row::*side, double Estimate::*value) {
    return RowColumn<Row>(name, head, formula, "/calibration/median", [=](const Row& row) {
      return Cell::of((row.*side).*value / kGB, gb_decimals((row.*side).value));
    });
  };
  const auto ratio = [](const char* name, const char* head, const char* formula,
                        double Estimate::*value, int detail = 1) {
    return RowColumn<Row>(
        name, head, formula, "/calibration/median",
        [=](const Row& row) { return Cell::of(row.ratio.*value, 3); }, detail);
  };
  const char *median = "busbw of the median call", *low = "lower end of its 95 % interval",
             *high = "upper end of its 95 % interval";
  return {{"collective", "collective", kLabel, [](const Row& row) { return row.name; }},
          busbw("a_busbw_GBps", "A GB/s", median, &Row::busbw_a, &Estimate::value),
          busbw("a_low", "low", low, &Row::busbw_a, &Estimate::low),
          busbw("a_high", "high", high, &Row::busbw_a, &Estimate::high),
          busbw("b_busbw_GBps", "B GB/s", median, &Row::busbw_b, &Estimate::value),
          busbw("b_low", "low", low, &Row::busbw_b, &Estimate::low),
          busbw("b_high", "high", high, &Row::busbw_b, &Estimate::high),
          ratio("ratio", "B/A", "busbw of B / busbw of A", &Estimate::value, 0),
          ratio("ratio_low", "low", "lower end of the ratio's 95 % interval", &Estimate::low),
          ratio("ratio_high", "high", "upper end of the ratio's 95 % interval", &Estimate::high),
          {"verdict", "verdict",
           [=](const Row& row) { return verdict_text(row.verdict(), row.fails(threshold)); }, 0}};
}

}  // namespace

Table link_comparison_table(const std::vector<ComparedLink>& links, double threshold,
                            std::uint64_t seed) {
  const auto columns = link_comparison_columns(threshold);
  Table table{"compare-links", "Bandwidth of collectives in B against A", {}, columns.heads(), {}};
  for (const ComparedLink& link : links)
    table.add(columns.cells(link));
  table.notes = {
      fmt::format("a size fails if it is slower and the ratio below {:.6g}", 1 - threshold),
      fmt::format("95 % intervals from 6 cycles or files on: of medians by order statistics, of "
                  "ratios from {} bootstrap resamples, seed {}; below that from the deviation of "
                  "the calls, without what differs between cycles (gradsync-calibrate -N 6)",
                  kResamples, seed)};
  return table;
}

Table comparison_table(const std::vector<ComparedCell>& cells, double threshold,
                       std::uint64_t seed) {
  const auto columns = cell_comparison_columns(threshold);
  Table table{"compare", "Iteration times of B against A", {}, columns.heads(), {}};
  for (const ComparedCell& cell : cells)
    table.add(columns.cells(cell), source(cell));
  for (const std::string& line : different_circumstances(cells))
    table.notes.push_back("A and B differ in " + line);
  const std::vector<std::string> methods = {
      fmt::format(
          "no difference: the interval contains 1; a cell fails if it is slower and the ratio "
          "above {:.6g}",
          1 + threshold),
      fmt::format("95 % interval of the ratio of medians from {} bootstrap resamples, seed {}; "
                  "iterations are treated as independent",
                  kResamples, seed),
      "an iteration counts as its slowest rank; steady iterations of all repeats of a cell "
      "(docs/numbers.md)"};
  table.notes.insert(table.notes.end(), methods.begin(), methods.end());
  return table;
}

namespace {

std::string ratio_text(const ComparedCell& cell) {
  return fmt::format("B/A = {:.4f} (95 %: {:.4f} to {:.4f}), A {:.6g} s, B {:.6g} s, {}",
                     cell.ratio.value, cell.ratio.low, cell.ratio.high, cell.time_a.value,
                     cell.time_b.value, cell.verdict());
}

JunitCase case_of(const ComparedCell& cell, double threshold) {
  if (!cell.both() || !cell.ratio.has_interval())
    return {cell.name, JunitCase::Result::kSkipped, cell.verdict(), ""};
  const auto result =
      cell.fails(threshold) ? JunitCase::Result::kFailed : JunitCase::Result::kPassed;
  return {cell.name, result, ratio_text(cell), "threshold"};
}

JunitCase case_of(const ComparedLink& link, double threshold) {
  if (!link.both() || !link.ratio.has_interval())
    return {link.name, JunitCase::Result::kSkipped, link.verdict(), ""};
  return {link.name,
          link.fails(threshold) ? JunitCase::Result::kFailed : JunitCase::Result::kPassed,
          fmt::format("busbw B/A = {:.4f} (95 %: {:.4f} to {:.4f}), A {:.6g} B/s, B {:.6g} B/s, {}",
                      link.ratio.value, link.ratio.low, link.ratio.high, link.busbw_a.value,
                      link.busbw_b.value, link.verdict()),
          "threshold"};
}

}  // namespace

std::string junit_text(const std::vector<ComparedCell>& cells,
                       const std::vector<ComparedLink>& links, double threshold) {
  std::vector<JunitCase> cases;
  for (const ComparedCell& cell : cells)
    cases.push_back(case_of(cell, threshold));
  for (const ComparedLink& link : links)
    cases.push_back(case_of(link, threshold));
  return junit_suite("gradsync-report compare", "gradsync.compare", cases);
}

}  // namespace gradsync::report
