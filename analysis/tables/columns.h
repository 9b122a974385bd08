// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/read/run_set.h"
#include "base/ranges.h"
#include "base/table.h"
#include "stats/estimate.h"

/// TableColumns that carry their cells, and what several tables have in common.
namespace gradsync::report {

/// Marks a text that tells rows apart (Column::label).
struct Label {};
inline constexpr Label kLabel;

/// The value of an estimate, or an end of its interval.
using End = double Estimate::*;
/// How the ends of an interval are computed; "{}" of the formula stands for the two words.
struct Ends {
  const char *formula, *lower = "lower", *upper = "upper";
};

/// A column of a table whose rows are of type Row: its head, how its numbers are computed, and the
/// cell of a row, which may be a member of the row. Column::detail 0: always shown.
template <typename Row>
struct RowColumn {
  using CellOf = std::function<Cell(const Row& row)>;
  Column column;
  CellOf cell;
  std::vector<RowColumn> ends = {};  ///< "low" and "high", which stand behind the column

  RowColumn(Column of, CellOf cell_of) : column(std::move(of)), cell(std::move(cell_of)) {}
  /// A text: from the left, without a claim.
  RowColumn(std::string name, std::string head, CellOf cell_of, int detail = 1)
      : RowColumn({std::move(name), std::move(head), true, "", "", detail}, std::move(cell_of)) {}
  RowColumn(std::string name, std::string head, Label, CellOf cell_of, int detail = 1)
      : RowColumn({std::move(name), std::move(head), true, "", "", detail, true},
                  std::move(cell_of)) {}
  /// A number with its formula, and the data sets that it is computed from. What was configured is
  /// a label.
  RowColumn(std::string name, std::string head, std::string formula, std::string dataset,
            CellOf cell_of, int detail = 1)
      : RowColumn({std::move(name), std::move(head), false, std::move(formula), dataset, detail,
                   dataset == "/topology/rank" || dataset.starts_with("/config")},
                  std::move(cell_of)) {}
  /// An estimate with its interval: "ratio" with "ratio_low" and "ratio_high", "time_s" with
  /// "time_low_s" and "time_high_s". `cell_of` makes the cell of one of the three.
  template <typename EndCell>
  RowColumn(std::string name, std::string head, std::string formula, std::string dataset,
            Ends of_ends, EndCell cell_of, int detail = 1)
      : RowColumn(
            name, std::move(head), std::move(formula), dataset,
            [cell_of](const Row& row) { return cell_of(row, &Estimate::value); }, detail) {
    std::string unit;
    for (const char* one : {"_gbit_per_s", "_ms", "_s", "_percent"})
      if (unit.empty() && name.ends_with(one)) unit = one;
    name.resize(name.size() - unit.size());
    const auto add = [&](const char* which, const char* word, End end) {
      ends.push_back({name + "_" + which + unit, which,
                      fmt::format(fmt::runtime(of_ends.formula), word), dataset,
                      [=](const Row& row) { return cell_of(row, end); }});
    };
    add("low", of_ends.lower, &Estimate::low);
    add("high", of_ends.upper, &Estimate::high);
  }
};

/// The columns of a table, in order.
template <typename Row>
class TableColumns {
 public:
  TableColumns(std::initializer_list<RowColumn<Row>> columns) {
    for (const RowColumn<Row>& one : columns) {
      all_.push_back(one);
      std::ranges::move(all_.back().ends, std::back_inserter(all_));
    }
  }
  /// TableColumns of what several types of rows have in common.
  template <typename Base>
  requires std::derived_from<Row, Base> TableColumns(const TableColumns<Base>& columns) {
    for (const RowColumn<Base>& one : columns)
      all_.emplace_back(one.column, one.cell);
  }

  TableColumns& add(const TableColumns& more) {
    all_.insert(all_.end(), more.begin(), more.end());
    return *this;
  }
  /// A table of these columns without rows.
  Table table(std::string name, std::string title, std::vector<std::string> notes) const {
    return {std::move(name),
            std::move(title),
            std::move(notes),
            each(all_, [](const RowColumn<Row>& one) { return one.column; }),
            {}};
  }
  std::vector<Cell> cells(const Row& row) const {
    return each(all_, [&](const RowColumn<Row>& one) { return one.cell(row); });
  }

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

 private:
  std::vector<RowColumn<Row>> all_;
};

/// What a row is about: a cell of the study, of repeats the first.
struct CellRow : CellSetting {
  std::string settings;     ///< GroupLabels::settings
  std::size_t repeats = 0;  ///< runs
  std::string name;         ///< of the first run, and how many more: "run (+2)"
};
CellRow cell_row(const Run& run);

/// mode, model, ranks, batch per rank, global batch.
TableColumns<CellRow> cell_columns();
TableColumns<CellRow> settings_column();
TableColumns<CellRow> repeats_column();
/// The column that tells repeats apart; it stands last, since names are long.
TableColumns<CellRow> name_column();

/// A row for a rank of a run, or for all of them: "mean".
struct RankRow : CellRow {
  Cell rank;
  std::string status;
};
RankRow rank_row(const Run& run, const Cell& rank);
RankRow rank_row(const Run& run, std::size_t rank);

/// cell_columns with the rank and the status of the run.
TableColumns<RankRow> rank_columns();

/// Rows and columns of tables with one row (or more) per group of repeats.
class GroupLabels {
 public:
  explicit GroupLabels(const std::vector<RunGroup>& groups);

  /// cell_columns, then, where groups differ in further options (bucket cap, learning rate, …),
  /// those.
  TableColumns<CellRow> columns() const;
  CellRow row(const RunGroup& group) const;
  /// Row of a cell of the study that left no run.
  CellRow row(const FailedCell& failed) const;

  /// "lr=0.4, threads=2": the options in which the groups differ; empty where they do not.
  std::string settings(const RunGroup& group) const;

 private:
  std::vector<std::string> varying_;  ///< of cell_options()
};

Cell count_cell(std::integral auto number) {
  return Cell::count(static_cast<double>(number));
}
/// A number of which 0 means that it is not known.
Cell known_count(std::int64_t number);
/// A number of any size with at least four digits that count, as seconds or GB/s.
Cell significant_cell(double value);
/// A share of 1 as a percentage.
Cell percent_cell(double share, int decimals = 1);
/// A part of a whole as a percentage.
Cell share_cell(double part, double whole);
/// Seconds as milliseconds.
Cell ms_cell(double time_s, int decimals = 3);

/// Digits behind the point for times in ms, one choice a table: 3 below 10 ms, else 2.
int ms_decimals(double largest_ms);

/// How many iterations SteadyRows leaves out: "2 a run by rule …, 0 to 15 more by the steady-state
/// test (MSER-5)", with how many runs were too short for it or never became steady.
std::string warmup_text(const RunSet& set);

/// How the runs of a set count waiting for a late rank: since schema 2 of run files it is a part of
/// the iteration beside communication, before that it was a part of communication.
struct WaitKinds {
  bool apart = false, within = false;
};
WaitKinds wait_kinds(const RunSet& set);

/// Adds waiting_text() to the notes, where it says something.
void add_waiting_note(const RunSet& set, std::vector<std::string>& notes);

/// Notes about runs of which a set may hold one kind or both: `apart`, `within`, or both, each with
/// the runs it speaks of.
std::vector<std::string> wait_notes(const WaitKinds& kinds, const std::string& apart,
                                    const std::string& within);

/// "a; b": the texts that are not empty.
std::string remark_of(std::initializer_list<std::string> texts);

}  // namespace gradsync::report
