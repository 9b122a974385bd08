#include "analysis/tables/run_cells.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "analysis/figures/split_figures.h"

namespace gradsync::report {

namespace {

Cell count_or_unknown(std::int64_t number) {
  return Cell::count(number > 0 ? static_cast<double>(number)
                                : std::numeric_limits<double>::quiet_NaN());
}

/// The least and the most of a number over the runs.
struct Range {
  std::size_t least = std::numeric_limits<std::size_t>::max(), most = 0;

  void add(std::size_t number) {
    least = std::min(least, number);
    most = std::max(most, number);
  }
  std::string text() const {
    return least >= most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
  }
};

std::string runs_text(std::size_t some, const RunSet& set) {
  return fmt::format("{} of {} runs", some, set.runs.size());
}

}  // namespace

std::vector<Column> cell_columns() {
  return {{"mode", "mode", true},
          {"model", "model", true},
          {"ranks", "ranks", false, "ranks of the run", "/topology/rank"},
          {"batch_per_rank", "batch/rank", false, "global batch / (ranks x accumulation)",
           "/config/batch-per-rank"},
          {"batch_global", "global", false, "ranks x batch per rank x accumulation",
           "/config/batch-global", 3}};
}

std::vector<Column> run_columns() {
  constexpr std::ptrdiff_t kRanks = 2;
  std::vector<Column> result = cell_columns();
  result.insert(result.begin() + kRanks + 1, {"rank", "rank", false, "the rank", "/topology/rank"});
  result.push_back({"status", "status", true, "", "", 3});
  return result;
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
  return {"run", "run", true, "", "", 3};
}

int ms_decimals(double largest_ms) {
  return largest_ms < 10 ? 3 : 2;
}

std::string warmup_text(const RunSet& set) {
  Range rule, test;
  std::size_t too_short = 0, restless = 0;
  for (const Run& run : set.runs) {
    rule.add(run.steady.by_rule);
    test.add(run.steady.by_test);
    too_short += run.steady.verdict == SteadyVerdict::kTooShort ? 1 : 0;
    restless += run.steady.verdict == SteadyVerdict::kNotSteady ? 1 : 0;
  }
  std::string text = fmt::format(
      "{} per run by rule (the first, and those it flags), {} more by the steady-state test "
      "(MSER-5)",
      rule.text(), test.text());
  if (too_short > 0)
    text += fmt::format("; {} shorter than the {} iterations that the test needs",
                        runs_text(too_short, set), kSteadyBatch * kSteadyBatches);
  if (restless > 0)
    text += fmt::format("; WARNING: {} never became steady", runs_text(restless, set));
  return text;
}

std::vector<std::string> remark_notes(const RunSet& set) {
  std::vector<std::string> notes;
  for (const std::string& remark : set.remarks)
    notes.push_back("note: " + remark);
  return notes;
}

WaitKinds wait_kinds(const RunSet& set) {
  WaitKinds kinds;
  for (const Run& run : set.runs)
    (waits_apart(*run.reader) ? kinds.apart : kinds.within) = true;
  return kinds;
}

void add_waiting_note(const RunSet& set, std::vector<std::string>& notes) {
  if (std::string text = waiting_text(set); !text.empty())
    notes.insert(notes.begin(), std::move(text));
}

std::vector<std::string> wait_notes(const WaitKinds& kinds, const std::string& apart,
                                    const std::string& within) {
  if (!kinds.within) return {apart};
  if (!kinds.apart) return {within};
  return {"runs of schema 2: " + apart, "runs of schema 1: " + within};
}

}  // namespace gradsync::report
