#pragma once

#include <string>
#include <vector>

#include "analysis/figures/run_group.h"
#include "base/table.h"

namespace gradsync::report {

/// What every table with one row (or more) per group of repeats has in common: the columns that say
/// which cell of the study a row is about.
class GroupLabels {
 public:
  explicit GroupLabels(const std::vector<RunGroup>& groups);

  /// mode, model, ranks, batch per rank, global batch, then, where groups differ in further
  /// options (bucket cap, learning rate, …), those.
  std::vector<Column> columns() const;
  std::vector<Cell> cells(const RunGroup& group) const;
  /// The same for a cell of the study that left no run.
  std::vector<Cell> cells(const FailedCell& failed) const;

  /// "lr=0.4, threads=2": the options in which the groups differ; empty where they do not.
  std::string settings(const RunGroup& group) const;

 private:
  std::vector<std::string> varying_;  ///< of cell_options()
};

/// How many repeats, and their names: "run (+2)". The names stand last, since they are long.
Column repeats_column();
Cell repeats_cell(const RunGroup& group);
Column group_name_column();
Cell group_name_cell(const RunGroup& group);

/// A number of which 0 means that it is not known.
Cell known_count(std::int64_t number);

/// A number of any size with at least four digits that count, as seconds or GB/s.
Cell significant_cell(double value);

}  // namespace gradsync::report
