// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// A run, and what its ranks hold at its end.
struct ReplicaRow : CellRow {
  const Run* run = nullptr;
  std::vector<RankReplica> ranks_at_end = {};
  Statistics test_percent = {};

  std::string option(const char* of) const { return run->reader->option(of); }
  std::string optimizer() const;
  std::string exchanged() const;
  std::string equal(std::string RankReplica::*hash) const;
  Cell largest(double RankReplica::*distance) const;
  /// A sum of what every epoch recorded; NaN where one did not.
  Cell sum(std::int64_t EpochRow::*count) const;
};

/// SGD by how it moves: its momentum makes it another optimizer.
std::string ReplicaRow::optimizer() const {
  const std::string momentum = option("momentum");
  if (option("optimizer") != "sgd" || momentum.empty()) return option("optimizer");
  return momentum == "0" ? "sgd" : fmt::format("sgd, momentum {}", momentum);
}

std::string ReplicaRow::exchanged() const {
  if (option("sync-only") == "gradients") return "gradients";
  const std::string norm = option("batch-norm");
  return norm.empty() || norm == "local" ? "all" : fmt::format("all, batch-norm {}", norm);
}

std::string ReplicaRow::equal(std::string RankReplica::*hash) const {
  if (ranks_at_end.empty()) return "";
  const std::string& first = ranks_at_end[0].*hash;
  if (first.empty()) return "none";
  return std::ranges::all_of(ranks_at_end, [&](const auto& rank) { return rank.*hash == first; })
             ? "equal"
             : "differ";
}

Cell ReplicaRow::largest(double RankReplica::*distance) const {
  double most = kNotMeasured;
  for (const RankReplica& rank : ranks_at_end)
    most = std::fmax(most, rank.*distance);
  return significant_cell(most);
}

Cell ReplicaRow::sum(std::int64_t EpochRow::*count) const {
  double sum = run->reader->epochs().empty() ? kNotMeasured : 0;
  for (const EpochRow& epoch : run->reader->epochs())
    sum += epoch.*count < 0 ? kNotMeasured : static_cast<double>(epoch.*count);
  return Cell::count(sum);
}

std::size_t different_orders(const Run& run) {
  std::set<std::string> orders;
  for (const EpochRow& epoch : run.reader->epochs())
    orders.insert(epoch.order_digest);
  return orders.size();
}

TableColumns<ReplicaRow> replica_columns() {
  using Row = ReplicaRow;
  const std::string accuracy = "/epoch/test_accuracy";
  TableColumns<Row> columns = {};
  for (RowColumn<CellRow> one : cell_columns()) {
    one.column.detail = 1;  // with the optimizer, the global batch is what the table compares
    if (one.column.name != "batch_per_rank") columns.add({{one.column, one.cell}});
  }
  columns.add(
      {{"optimizer", "optimizer", &Row::optimizer},
       {"init", "init",
        [](const Row& row) { return row.option("init").empty() ? "equal" : row.option("init"); }},
       {"exchanged", "exchanged", &Row::exchanged},
       {"iterations", "iterations", "iterations of the run", "/iteration/number",
        [](const Row& row) { return count_cell(row.run->reader->iterations()); }},
       {"parameters", "parameters",
        [](const Row& row) { return row.equal(&RankReplica::parameter_hash); }},
       {"parameter_distance", "parameter distance", "largest over the ranks",
        "/replica/parameter_distance",
        [](const Row& row) { return row.largest(&RankReplica::parameter_distance); }, 0},
       {"buffers", "buffers", [](const Row& row) { return row.equal(&RankReplica::buffer_hash); }},
       {"buffer_distance", "buffer distance", "largest over the ranks", "/replica/buffer_distance",
        [](const Row& row) { return row.largest(&RankReplica::buffer_distance); }, 0},
       {"test_lowest_percent", "lowest test %", "lowest rank, last epoch", accuracy,
        [](const Row& row) { return Cell::of(row.test_percent.minimum, 2); }, 0},
       {"test_mean_percent", "mean test %", "mean over the ranks, last epoch", accuracy,
        [](const Row& row) { return Cell::of(row.test_percent.mean, 2); }},
       {"test_highest_percent", "highest test %", "highest rank, last epoch", accuracy,
        [](const Row& row) { return Cell::of(row.test_percent.maximum, 2); }, 0},
       {"epochs", "epochs", "epochs of the run", "/epoch/number",
        [](const Row& row) { return count_cell(row.run->reader->epochs().size()); }},
       {"orders", "orders", "orders of the images that differ", "/epoch/order_digest",
        [](const Row& row) { return count_cell(different_orders(*row.run)); }},
       {"batches", "batches", "global batches that differ, as sets of images", "/epoch/new_batches",
        [](const Row& row) { return row.sum(&EpochRow::new_batches); }},
       {"shared_images", "shared images", "images that several ranks used in one epoch, all epochs",
        "/epoch/shared_images", [](const Row& row) { return row.sum(&EpochRow::shared_images); },
        0}});
  return columns.add(name_column());
}

ReplicaRow replica_row(const Run& run) {
  ReplicaRow row{cell_row(run), &run};
  if (!run.reader->replicas().empty()) row.ranks_at_end = run.reader->replicas().back().ranks;
  std::vector<double> percents;
  if (!run.reader->epochs().empty())
    for (const RankEpoch& rank : run.reader->epochs().back().ranks)
      percents.push_back(1e2 * rank.test_accuracy);
  row.test_percent = statistics(percents);
  return row;
}

}  // namespace

Table make_replicas_table(const RunSet& set, const TableOptions&) {
  const auto columns = replica_columns();
  Table table = columns.table(
      "replicas", "Replica consistency at the end, and images per rank",
      {"parameters, buffers (batch-norm statistics): equal if their bits are, on all ranks; "
       "distance: of a rank's from rank 0's, over the length of rank 0's, the largest",
       "test %: of each rank's own network where ranks may differ, else of the one network",
       "orders, batches: of the run's epochs; batches are counted as sets of images. Shared "
       "images: used by more than one rank in an epoch, without the repeats that fill the last "
       "batch"});
  for (const Run& run : set.runs)
    table.add(columns.cells(replica_row(run)), run.path.string());
  return table;
}

}  // namespace gradsync::report
