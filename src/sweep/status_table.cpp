#include "sweep/status_table.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "support/parse.h"
#include "sweep/runner.h"

namespace gradsync::sweep {

namespace {

std::string iterations_text(const CellProgress& cell) {
  if (cell.iterations == 0 && cell.wanted == 0) return "-";
  return fmt::format("{} of {}", cell.iterations,
                     cell.wanted > 0 ? std::to_string(cell.wanted) : "?");
}

std::string totals(const std::vector<CellProgress>& cells) {
  std::map<CellState, std::size_t> count;
  for (const auto& cell : cells)
    ++count[cell.state];
  std::string text = fmt::format("{} of {} cells done", count[CellState::kDone], cells.size());
  for (const auto& [state, number] : count)
    if (state != CellState::kDone && number > 0)
      text += fmt::format(", {} {}", number, state_text(state));
  return text;
}

// Of the cells that are to run: those that failed for good, or do not fit, are no progress to come.
std::string pace(const std::vector<CellProgress>& cells) {
  const double left_s = seconds_left(cells);
  if (std::isnan(left_s)) return "time left: unknown before the first iteration";
  if (left_s == 0) return "nothing is left to run";
  return fmt::format("{}, at the mean rate of the cells so far; without starts and evaluations",
                     time_left_text(left_s));
}

}  // namespace

Table status_table(const std::string& name, const std::vector<CellProgress>& cells) {
  Table table{"status",
              "Grid " + name,
              {totals(cells), pace(cells),
               "time: from the start of a cell's run to its last recorded iteration"},
              {{"number", "#"},
               {"cell", "cell", true},
               {"state", "state", true},
               {"iterations", "iterations"},
               {"time", "time"},
               {"message", "", true}},
              {}};
  double number = 0;
  for (const auto& cell : cells)
    table.add({Cell::count(++number), cell.cell, state_text(cell.state), iterations_text(cell),
               std::isnan(cell.time_s) ? "-" : format_duration(cell.time_s), cell.message});
  return table;
}

}  // namespace gradsync::sweep
