#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/split_figures.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

struct SplitPart {
  Phase phase;
  const char* name;
  const char* head;
};

constexpr std::array<SplitPart, 7> kSplitParts = {{{Phase::kCompute, "compute", "compute"},
                                                   {Phase::kCommBusy, "comm_busy", "comm"},
                                                   {Phase::kHidden, "hidden", "hidden"},
                                                   {Phase::kExposed, "exposed", "exposed"},
                                                   {Phase::kOther, "other", "other"},
                                                   {Phase::kWait, "wait", "wait"},
                                                   {Phase::kData, "data", "data"}}};

struct RunSplit {
  const Run* run;
  std::vector<SplitFigures> ranks;
};

std::vector<Column> split_columns() {
  std::vector<Column> result = run_columns();
  const std::string mean = "mean over the steady iterations of the rank";
  result.push_back({"iterations", "n", false, "steady iterations", "/iteration/number", 2});
  result.push_back({"iteration_ms", "iteration ms", false, mean, "/time/iteration"});
  for (const SplitPart& part : kSplitParts) {
    const std::string dataset = fmt::format("/time/{}", part.name);
    const bool rare =
        part.phase == Phase::kCommBusy || part.phase == Phase::kData || part.phase == Phase::kOther;
    result.push_back({fmt::format("{}_ms", part.name), fmt::format("{} ms", part.head), false, mean,
                      dataset, rare ? 2 : 1});
    result.push_back({fmt::format("{}_percent", part.name), "%", false,
                      mean + " / mean of the iteration", dataset + ", /time/iteration", 2});
  }
  result.push_back(run_name_column());
  result.back().detail = 3;
  keep(result, {"rank"});
  return result;
}

std::vector<Cell> split_row(const Run& run, const Cell& rank, const SplitFigures& figures,
                            int decimals) {
  std::vector<Cell> cells = run_cells(run, rank);
  cells.push_back(Cell::count(static_cast<double>(figures.iterations)));
  cells.push_back(Cell::of(1e3 * figures[Phase::kIteration], decimals));
  for (const SplitPart& part : kSplitParts) {
    const double part_s = part.phase == Phase::kWait ? figures.wait_s() : figures[part.phase];
    cells.push_back(Cell::of(1e3 * part_s, decimals));
    cells.push_back(Cell::of(1e2 * part_s / figures[Phase::kIteration], 1));
  }
  cells.emplace_back(run.name);
  return cells;
}

int split_decimals_for(const std::vector<RunSplit>& all) {
  double largest_s = 0;
  for (const RunSplit& run : all)
    for (const SplitFigures& rank : run.ranks)
      largest_s = std::fmax(largest_s, rank[Phase::kIteration]);
  return ms_decimals(1e3 * largest_s);
}

std::string sum_note(const WaitKinds& kinds, const std::vector<RunSplit>& all) {
  double gap = 0;
  const Run* worst = nullptr;
  for (const RunSplit& run : all)
    for (const SplitFigures& rank : run.ranks) {
      if (!(rank.gap() > gap)) continue;
      gap = rank.gap();
      worst = run.run;
    }
  const char* parts =
      kinds.apart ? "compute + exposed + wait + other" : "compute + exposed + other";
  if (gap <= kLargestGap) return fmt::format("{} = iteration, checked to 1 %", parts);
  return fmt::format(
      "WARNING: {} differs from the iteration by {:.1f} % in {}: its parts were not measured over "
      "the same iterations",
      parts, 1e2 * gap, worst->name);
}

std::vector<std::string> split_notes(const RunSet& set, const std::vector<RunSplit>& all) {
  const WaitKinds kinds = wait_kinds(set);
  std::vector<std::string> result = wait_notes(
      kinds,
      "measured, with C the union of the compute intervals of a rank in an iteration of length W, "
      "K of the intervals in which data of its collectives could move, from the arrival of the "
      "last rank on, and S of those in which its collectives waited for that rank: compute = |C|, "
      "comm = |K|, hidden = |C and K|, exposed = |K without C|, wait = |S without C and K|, other "
      "= W - |C or K or S|; data (waiting for the loader) is part of other",
      "measured, with C the union of the compute intervals and K of the collectives' intervals of "
      "a rank in an iteration of length W: compute = |C|, comm = |K|, hidden = |C and K|, exposed "
      "= |K without C|, other = W - |C or K|");
  if (!kinds.apart) result.emplace_back("data (waiting for the loader) is part of other");
  result.push_back(sum_note(kinds, all));
  result.push_back(
      fmt::format("means over n iterations; left out as warm-up: {}; % of the iteration; the row "
                  "\"mean\" is the mean over the ranks",
                  warmup_text(set)));
  add_waiting_note(set, result);
  return result;
}

}  // namespace

Table make_split_table(const RunSet& set, const TableOptions&) {
  std::vector<RunSplit> all;
  for (const Run& run : set.runs)
    all.push_back({&run, split_figures(*run.reader, run.steady)});
  Table table{
      "split", "Where the iteration goes, measured", split_notes(set, all), split_columns(), {}};
  const int decimals = split_decimals_for(all);
  for (const RunSplit& one : all) {
    for (const std::size_t rank : one.run->steady.ranks)
      table.add(
          split_row(*one.run, Cell::count(static_cast<double>(rank)), one.ranks[rank], decimals),
          one.run->path.string());
    table.add(split_row(*one.run, "mean", mean_of(one.ranks), decimals), one.run->path.string());
  }
  return table;
}

}  // namespace gradsync::report
