#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/tables/comparison.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

constexpr const char* kDataset = "/time/iteration";

std::vector<Column> columns() {
  return {
      {"cell", "cell", true},
      {"ranks", "ranks", false, "ranks of the run", "/topology/rank"},
      {"batch_per_rank", "batch/rank", false, "global batch / (ranks x accumulation)",
       "/config/batch-per-rank"},
      {"a_iterations", "n of A", false, "steady iterations of all repeats", "/iteration/number", 2},
      {"b_iterations", "n of B", false, "steady iterations of all repeats", "/iteration/number", 2},
      {"a_median_ms", "A ms", false, "median over n of the slowest rank", kDataset},
      {"b_median_ms", "B ms", false, "median over n of the slowest rank", kDataset},
      {"ratio", "B/A", false, "median of B / median of A", kDataset, 0},
      {"ratio_low", "low", false, "lower end of the ratio's 95 % bootstrap interval", kDataset},
      {"ratio_high", "high", false, "upper end of the ratio's 95 % bootstrap interval", kDataset},
      {"verdict", "verdict", true, "", "", 0}};
}

std::vector<Cell> row(const ComparedCell& cell, double threshold) {
  const Run& run = (cell.a == nullptr ? cell.b : cell.a)->first();
  const int decimals = ms_decimals(1e3 * std::fmax(cell.time_a.value, cell.time_b.value));
  return {cell.name,
          known_count(run.ranks),
          known_count(run.batch_per_rank),
          Cell::count(static_cast<double>(cell.time_a.count)),
          Cell::count(static_cast<double>(cell.time_b.count)),
          Cell::of(1e3 * cell.time_a.value, decimals),
          Cell::of(1e3 * cell.time_b.value, decimals),
          Cell::of(cell.time.ratio.value, 3),
          Cell::of(cell.time.ratio.low, 3),
          Cell::of(cell.time.ratio.high, 3),
          cell.verdict() + (cell.fails(threshold) ? " (beyond the threshold)" : "")};
}

std::string source(const ComparedCell& cell) {
  if (!cell.both()) return sources_of(cell.a == nullptr ? *cell.b : *cell.a);
  return sources_of(*cell.a) + ", " + sources_of(*cell.b);
}

}  // namespace

namespace {

/// Of GB/s: three, or as many as show three digits of a small bandwidth.
int gb_decimals(double bandwidth_Bps) {
  const double rate = bandwidth_Bps / kGB;
  return rate > 0 ? std::clamp(2 - static_cast<int>(std::floor(std::log10(rate))), 3, 9) : 3;
}

}  // namespace

Table link_comparison_table(const std::vector<ComparedLink>& links, double threshold,
                            std::uint64_t seed) {
  const auto busbw_column = [](const char* id, const char* title, const char* formula) {
    return Column{id, title, false, formula, "/calibration/median"};
  };
  Table table{"compare-links", "Bandwidth of collectives in B against A", {}, {}, {}};
  table.columns = {{"collective", "collective", true},
                   busbw_column("a_busbw_GBps", "A GB/s", "busbw of the median call"),
                   busbw_column("a_low", "low", "lower end of its 95 % interval"),
                   busbw_column("a_high", "high", "upper end of its 95 % interval"),
                   busbw_column("b_busbw_GBps", "B GB/s", "busbw of the median call"),
                   busbw_column("b_low", "low", "lower end of its 95 % interval"),
                   busbw_column("b_high", "high", "upper end of its 95 % interval"),
                   {"ratio", "B/A", false, "busbw of B / busbw of A", "/calibration/median", 0},
                   busbw_column("ratio_low", "low", "lower end of the ratio's 95 % interval"),
                   busbw_column("ratio_high", "high", "upper end of the ratio's 95 % interval"),
                   {"verdict", "verdict", true, "", "", 0}};
  for (const ComparedLink& link : links) {
    std::vector<Cell> cells = {link.name};
    for (const Estimate* one : {&link.busbw_a, &link.busbw_b})
      for (const double value : {one->value, one->low, one->high})
        cells.push_back(Cell::of(value / kGB, gb_decimals(one->value)));
    for (const double value : {link.ratio.value, link.ratio.low, link.ratio.high})
      cells.push_back(Cell::of(value, 3));
    cells.emplace_back(link.verdict() + (link.fails(threshold) ? " (beyond the threshold)" : ""));
    table.add(std::move(cells));
  }
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
  Table table{"compare", "Iteration times of B against A", {}, columns(), {}};
  for (const ComparedCell& cell : cells)
    table.add(row(cell, threshold), source(cell));
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

}  // namespace gradsync::report
