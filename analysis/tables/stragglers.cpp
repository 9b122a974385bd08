#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/straggler_figures.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

constexpr const char* kArrivals = "/time/begin, /bucket/start";

std::vector<Column> stragglers_columns() {
  std::vector<Column> result = run_columns();
  const std::vector<Column> rest = {
      {"host", "host", true},
      {"iterations", "n", false, "steady iterations", "/iteration/number"},
      {"suffered_ms", "suffered ms", false, "mean wait of an iteration", "/time/wait"},
      {"caused_ms", "caused ms", false,
       "mean per iteration of the sum over collectives to which the rank came last, over the other "
       "ranks, of (its arrival - theirs)",
       kArrivals},
      {"caused_percent", "of all %", false, "caused / sum of caused over the ranks", kArrivals},
      {"last_percent", "last %", false, "collectives to which the rank came last / all", kArrivals},
      run_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"rank", "suffered_ms", "caused_ms", "last_percent"});
  return result;
}

std::vector<Cell> stragglers_row(const Run& run, std::size_t rank, const Stragglers& all) {
  const StragglerFigures& figures = all.ranks[rank];
  std::vector<Cell> cells = run_cells(run, Cell::count(static_cast<double>(rank)));
  cells.emplace_back(run.reader->info().topology[rank].host);
  cells.push_back(Cell::count(static_cast<double>(all.iterations)));
  cells.push_back(Cell::of(1e3 * figures.suffered_s, 3));
  cells.push_back(Cell::of(1e3 * figures.caused_s, 3));
  cells.push_back(Cell::of(figures.caused_percent, 1));
  cells.push_back(Cell::of(figures.last_percent, 1));
  cells.emplace_back(run.name);
  return cells;
}

/// The most that any run leaves to chance.
std::string clock_note(double undecided_percent) {
  if (std::isnan(undecided_percent)) return "no run holds collectives of two ranks or more";
  return fmt::format(
      "clocks: in up to {:.1f} % of a run's collectives the last rank arrives after the one before "
      "it by less than the uncertainty of their clocks, so the order is unknown",
      undecided_percent);
}

std::vector<std::string> stragglers_notes(const RunSet& set, double undecided_percent) {
  std::vector<std::string> result = wait_notes(
      wait_kinds(set),
      "suffered: mean per iteration of wait, the time in a rank's collectives before the last rank "
      "arrived, without compute or communication",
      "suffered: mean per iteration of wait, the part of a rank's collectives above the shortest "
      "duration of the same collective over the ranks");
  result.insert(result.end(),
                {"caused: mean per iteration of the other ranks' wait for this one, from their "
                 "arrivals at the collectives to which it came last; counted as if no rank could "
                 "continue before the last one arrives, so the sums of the two columns may differ",
                 clock_note(undecided_percent), fmt::format("left out: {}", warmup_text(set))});
  return result;
}

}  // namespace

Table make_stragglers_table(const RunSet& set, const TableOptions&) {
  Table table{"stragglers", "Who waits for whom", {}, stragglers_columns(), {}};
  double undecided_percent = kNotMeasured;
  for (const Run& run : set.runs) {
    const Stragglers all = stragglers(*run.reader, run.steady);
    undecided_percent = std::fmax(undecided_percent, all.undecided_percent);
    for (const std::size_t rank : run.steady.ranks)
      table.add(stragglers_row(run, rank, all), run.path.string());
  }
  table.notes = stragglers_notes(set, undecided_percent);
  return table;
}

}  // namespace gradsync::report
