#include "analysis/tables/run_cells.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "analysis/metrics/columns.h"

namespace gradsync {

namespace {

Cell count_or_unknown(std::int64_t number) {
  return Cell::count(number > 0 ? static_cast<double>(number)
                                : std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

std::vector<Column> run_columns() {
  return {{"mode", "mode", true},    {"model", "model", true},         {"ranks", "ranks"},
          {"rank", "rank"},          {"batch_per_rank", "batch/rank"}, {"batch_global", "global"},
          {"status", "status", true}};
}

std::vector<Cell> run_cells(const Run& run, const Cell& rank) {
  return {run.mode,
          run.model,
          Cell::count(static_cast<double>(run.ranks)),
          rank,
          count_or_unknown(run.batch_per_rank),
          count_or_unknown(run.batch_global),
          run.status()};
}

Column run_name_column() {
  return {"run", "run", true};
}

int ms_decimals(double largest_ms) {
  return largest_ms < 10 ? 3 : 2;
}

std::string warmup_text(const RunSet& set) {
  std::size_t least = std::numeric_limits<std::size_t>::max(), most = 0;
  for (const Run& run : set.runs) {
    const std::size_t warmup = run.reader->iterations() - steady_iterations(run.reader->index());
    least = std::min(least, warmup);
    most = std::max(most, warmup);
  }
  return least >= most ? fmt::format("{} a run", most) : fmt::format("{} to {} a run", least, most);
}

std::vector<std::string> remark_notes(const RunSet& set) {
  std::vector<std::string> notes;
  for (const std::string& remark : set.remarks)
    notes.push_back("note: " + remark);
  return notes;
}

}  // namespace gradsync
