// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>

#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

struct ChoiceRow : CellRow {
  NcclChoice choice;
};

TableColumns<ChoiceRow> choice_columns(const GroupLabels& labels) {
  using Row = ChoiceRow;
  TableColumns<Row> columns = labels.columns();
  return columns.add(
      {{"collective", "collective", kLabel, [](const Row& row) { return row.choice.collective; },
        0},
       {"type", "type", kLabel, [](const Row& row) { return row.choice.type; }},
       {"mib", "MiB", "payload of a rank / 2^20", "/nccl/bytes",
        [](const Row& row) {
          const auto bytes = static_cast<double>(row.choice.bytes);
          return significant_cell(bytes < 0 ? kNotMeasured : bytes / kMiB);
        },
        0},
       {"algorithm", "algorithm", kLabel, [](const Row& row) { return row.choice.algorithm; }, 0},
       {"protocol", "protocol", kLabel, [](const Row& row) { return row.choice.protocol; }, 0},
       {"channels", "channels", "that the collective uses", "/nccl/channels",
        [](const Row& row) { return count_cell(row.choice.channels); }, 0}});
}

}  // namespace

bool has_nccl_choices(const RunSet& set, const TableOptions&) {
  return std::ranges::any_of(set.runs,
                             [](const Run& run) { return !run.reader->nccl_choices().empty(); });
}

/// A collective for which NCCL chose otherwise in a repeat has a row more.
Table make_nccl_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const auto columns = choice_columns(labels);
  Table table = columns.table("nccl", "What NCCL chose",
                              {"as NCCL told its profiler interface on rank 0, for all collectives "
                               "of the job; sends and receives have no algorithm"});
  for (const RunGroup& group : groups) {
    std::set<NcclChoice> choices;
    for (const Run* run : group.repeats)
      choices.insert(run->reader->nccl_choices().begin(), run->reader->nccl_choices().end());
    for (const NcclChoice& choice : choices)
      table.add(columns.cells({labels.row(group), choice}), sources_of(group));
  }
  return table;
}

}  // namespace gradsync::report
