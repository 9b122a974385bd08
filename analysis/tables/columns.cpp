// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/tables/columns.h"

#include <cmath>

#include "analysis/figures/rank_figures.h"
#include "base/parse.h"

namespace gradsync::report {

CellRow cell_row(const Run& run) {
  return {static_cast<const CellSetting&>(run), "", 1, run.name};
}

TableColumns<CellRow> cell_columns() {
  using Row = CellRow;
  return {
      {"mode", "mode", kLabel, &Row::mode},
      {"model", "model", kLabel, &Row::model},
      {"ranks", "ranks", "ranks of the run", "/topology/rank",
       [](const Row& row) { return known_count(row.ranks); }},
      {"batch_per_rank", "batch/rank", "global batch / (ranks x accumulation)",
       "/config/batch-per-rank", [](const Row& row) { return known_count(row.batch_per_rank); }},
      {"batch_global", "global", "ranks x batch per rank x accumulation", "/config/batch-global",
       [](const Row& row) { return known_count(row.batch_global); }, 3}};
}

TableColumns<CellRow> settings_column() {
  return {{"settings", "settings", kLabel, &CellRow::settings}};
}

TableColumns<CellRow> repeats_column() {
  return {{"runs", "runs", "repeats of the cell", "/config",
           [](const CellRow& row) { return count_cell(row.repeats); }}};
}

TableColumns<CellRow> name_column() {
  return {{"run", "run", kLabel, &CellRow::name, 3}};
}

RankRow rank_row(const Run& run, const Cell& rank) {
  return {cell_row(run), rank, run.status()};
}

RankRow rank_row(const Run& run, std::size_t rank) {
  return rank_row(run, count_cell(rank));
}

TableColumns<RankRow> rank_columns() {
  TableColumns<RankRow> columns = {};
  for (const RowColumn<CellRow>& one : cell_columns()) {
    columns.add({{one.column, one.cell}});
    if (one.column.name == "ranks")
      columns.add({{"rank", "rank", "the rank", "/topology/rank", &RankRow::rank, 0}});
  }
  return columns.add({{"status", "status", &RankRow::status, 3}});
}

GroupLabels::GroupLabels(const std::vector<RunGroup>& groups)
    : varying_(differing_options(pointers_to(groups))) {}

TableColumns<CellRow> GroupLabels::columns() const {
  TableColumns<CellRow> columns = cell_columns();
  return varying_.empty() ? columns : columns.add(settings_column());
}

CellRow GroupLabels::row(const RunGroup& group) const {
  CellRow row = cell_row(group.first());
  row.settings = settings(group);
  row.repeats = group.repeats.size();
  if (row.repeats > 1) row.name += fmt::format(" (+{})", row.repeats - 1);
  return row;
}

CellRow GroupLabels::row(const FailedCell& failed) const {
  return {static_cast<const CellSetting&>(failed), "", 0, failed.cell};
}

std::string GroupLabels::settings(const RunGroup& group) const {
  return settings_text(group.first(), varying_);
}

Cell known_count(std::int64_t number) {
  return Cell::count(number > 0 ? static_cast<double>(number) : kNotMeasured);
}

Cell significant_cell(double value) {
  if (value == 0) return Cell::count(0);
  int decimals = 3;
  for (double limit = 1; decimals < 9 && std::abs(value) < limit; limit /= 10)
    ++decimals;
  if (std::abs(value) >= 10) decimals = 2;
  return Cell::of(value, decimals);
}

Cell percent_cell(double share, int decimals) {
  return Cell::of(1e2 * share, decimals);
}

Cell share_cell(double part, double whole) {
  return Cell::of(1e2 * part / whole, 1);
}

Cell ms_cell(double time_s, int decimals) {
  return Cell::of(1e3 * time_s, decimals);
}

int ms_decimals(double largest_ms) {
  return largest_ms < 10 ? 3 : 2;
}

std::string warmup_text(const RunSet& set) {
  CountRange rule, test;
  std::size_t too_short = 0, restless = 0;
  bool periods = false;
  for (const Run& run : set.runs) {
    periods |= exchange_period(*run.reader) > 1;
    rule.add(run.steady.by_rule);
    test.add(run.steady.by_test);
    too_short += run.steady.verdict == SteadyVerdict::kTooShort ? 1 : 0;
    restless += run.steady.verdict == SteadyVerdict::kNotSteady ? 1 : 0;
  }
  std::string text = fmt::format(
      "{} per run by rule ({}), {} more by the steady-state test (MSER-5)", rule.text(),
      periods ? "the first, those it flags, and at the end those of no whole period of local-sgd"
              : "the first, and those it flags",
      test.text());
  if (too_short > 0)
    text += fmt::format("; {} of {} shorter than the {} iterations that the test needs", too_short,
                        count_text(set.runs.size(), "run"), kSteadyBatch * kSteadyBatches);
  if (restless > 0)
    text += fmt::format("; WARNING: {} of {} never became steady", restless,
                        count_text(set.runs.size(), "run"));
  return text;
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

std::string remark_of(std::initializer_list<std::string> texts) {
  std::string joined;
  for (const std::string& text : texts)
    if (!text.empty()) joined += (joined.empty() ? "" : "; ") + text;
  return joined;
}

}  // namespace gradsync::report
