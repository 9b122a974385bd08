#include <array>
#include <span>

#include <fmt/format.h>

#include "analysis/figures/traffic_figures.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

std::vector<Column> traffic_columns() {
  std::vector<Column> result = run_columns();
  result.push_back({"iterations", "n", false, "steady iterations", "/iteration/number"});
  for (const std::string_view name : std::span(kTrafficNames).first(kRowCategories))
    result.push_back({fmt::format("{}_bytes", name), fmt::format("{} B", name), false,
                      "mean per iteration", fmt::format("/traffic/{}", name)});
  result.push_back({"total_bytes", "total B", false, "sum of the categories", "/traffic/*"});
  result.push_back({"total_gb", "total GB", false, "sum of the categories / 1e9", "/traffic/*"});
  result.push_back(run_name_column());
  keep(result, {"rank", "gradients_bytes", "total_bytes"});
  return result;
}

std::vector<Cell> traffic_row(const Run& run, const Cell& rank, const TrafficFigures& figures) {
  std::vector<Cell> cells = run_cells(run, rank);
  cells.push_back(Cell::count(static_cast<double>(figures.iterations)));
  for (const double bytes : figures.bytes)
    cells.push_back(Cell::of(bytes, 0));
  cells.push_back(Cell::of(figures.total(), 0));
  cells.push_back(Cell::of(1e-9 * figures.total(), 6));
  cells.emplace_back(run.name);
  return cells;
}

std::vector<std::string> traffic_notes(const RunSet& set) {
  return {
      "bytes of one iteration through the link of a rank, as the usual algorithm of each "
      "collective "
      "moves them (docs/numbers.md), not counted on the wire; mean over n iterations",
      "the row \"all\" is the sum over the ranks, which counts a byte at the sender and at the "
      "receiver; GB = "
      "1e9 "
      "bytes",
      fmt::format("left out: {}", warmup_text(set))};
}

}  // namespace

Table make_traffic_table(const RunSet& set, const TableOptions&) {
  Table table{
      "traffic", "Traffic of an iteration, by category", traffic_notes(set), traffic_columns(), {}};
  for (const Run& run : set.runs) {
    const auto ranks = traffic_figures(*run.reader, run.steady);
    for (const std::size_t rank : run.steady.ranks)
      table.add(traffic_row(run, Cell::count(static_cast<double>(rank)), ranks[rank]),
                run.path.string());
    table.add(traffic_row(run, "all", sum_of(ranks)), run.path.string());
  }
  return table;
}

}  // namespace gradsync::report
