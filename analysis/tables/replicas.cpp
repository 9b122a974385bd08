#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

std::vector<Column> replicas_columns() {
  const std::string accuracy = "/epoch/test_accuracy";
  std::vector<Column> result = cell_columns();
  std::erase_if(result, [](const Column& column) { return column.name == "batch_per_rank"; });
  result.back().detail = 1;  // with the optimizer, what the table compares
  const std::vector<Column> further = {
      {"optimizer", "optimizer", true},
      {"init", "init", true},
      {"exchanged", "exchanged", true},
      {"iterations", "iterations", false, "iterations of the run", "/iteration/number"},
      {"parameters", "parameters", true},
      {"parameter_distance", "parameter distance", false, "largest over the ranks",
       "/replica/parameter_distance"},
      {"buffers", "buffers", true},
      {"buffer_distance", "buffer distance", false, "largest over the ranks",
       "/replica/buffer_distance"},
      {"test_lowest_percent", "lowest test %", false, "lowest rank, last epoch", accuracy},
      {"test_mean_percent", "mean test %", false, "mean over the ranks, last epoch", accuracy},
      {"test_highest_percent", "highest test %", false, "highest rank, last epoch", accuracy},
      {"epochs", "epochs", false, "epochs of the run", "/epoch/number"},
      {"orders", "orders", false, "orders of the images that differ", "/epoch/order_digest"},
      {"batches", "batches", false, "global batches that differ, as sets of images",
       "/epoch/new_batches"},
      {"shared_images", "shared images", false,
       "images that several ranks used in one epoch, all epochs", "/epoch/shared_images"},
      run_name_column()};
  result.insert(result.end(), further.begin(), further.end());
  keep(result, {"parameter_distance", "buffer_distance", "test_lowest_percent",
                "test_highest_percent", "shared_images"});
  return result;
}

/// SGD by how it moves: its momentum makes it another optimizer.
std::string optimizer_text(const Run& run) {
  const std::string name = run.reader->option("optimizer");
  const std::string momentum = run.reader->option("momentum");
  if (name != "sgd" || momentum.empty()) return name;
  return momentum == "0" ? "sgd" : fmt::format("sgd, momentum {}", momentum);
}

std::string exchanged_text(const Run& run) {
  if (run.reader->option("sync-only") == "gradients") return "gradients";
  const std::string norm = run.reader->option("batch-norm");
  return norm.empty() || norm == "local" ? "all" : fmt::format("all, batch-norm {}", norm);
}

std::string equal_text(const std::vector<RankReplica>& ranks, std::string RankReplica::*hash) {
  if (ranks.empty()) return "";
  if ((ranks[0].*hash).empty()) return "none";
  const bool equal = std::all_of(ranks.begin(), ranks.end(), [&](const RankReplica& rank) {
    return rank.*hash == ranks[0].*hash;
  });
  return equal ? "equal" : "differ";
}

double replicas_largest(const std::vector<RankReplica>& ranks, double RankReplica::*distance) {
  double most = kNotMeasured;
  for (const RankReplica& rank : ranks)
    most = std::fmax(most, rank.*distance);
  return most;
}

std::vector<double> test_percents(const Run& run) {
  std::vector<double> values;
  if (run.reader->epochs().empty()) return values;
  for (const RankEpoch& rank : run.reader->epochs().back().ranks)
    values.push_back(1e2 * rank.test_accuracy);
  return values;
}

/// A sum of what every epoch recorded; NaN where one did not.
double sum_of(const Run& run, std::int64_t EpochRow::*count) {
  double sum = run.reader->epochs().empty() ? kNotMeasured : 0;
  for (const EpochRow& epoch : run.reader->epochs())
    sum += epoch.*count < 0 ? kNotMeasured : static_cast<double>(epoch.*count);
  return sum;
}

double orders_of(const Run& run) {
  std::set<std::string> orders;
  for (const EpochRow& epoch : run.reader->epochs())
    orders.insert(epoch.order_digest);
  return static_cast<double>(orders.size());
}

std::vector<Cell> replicas_row(const Run& run) {
  const auto& recorded = run.reader->replicas();
  const auto ranks = recorded.empty() ? std::vector<RankReplica>() : recorded.back().ranks;
  const Statistics test = statistics(test_percents(run));
  const std::string init = run.reader->option("init");
  return {run.mode,
          run.model,
          known_count(run.ranks),
          known_count(run.batch_global),
          optimizer_text(run),
          init.empty() ? "equal" : init,
          exchanged_text(run),
          Cell::count(static_cast<double>(run.reader->iterations())),
          equal_text(ranks, &RankReplica::parameter_hash),
          significant_cell(replicas_largest(ranks, &RankReplica::parameter_distance)),
          equal_text(ranks, &RankReplica::buffer_hash),
          significant_cell(replicas_largest(ranks, &RankReplica::buffer_distance)),
          Cell::of(test.minimum, 2),
          Cell::of(test.mean, 2),
          Cell::of(test.maximum, 2),
          Cell::count(static_cast<double>(run.reader->epochs().size())),
          Cell::count(orders_of(run)),
          Cell::count(sum_of(run, &EpochRow::new_batches)),
          Cell::count(sum_of(run, &EpochRow::shared_images)),
          run.name};
}

}  // namespace

Table make_replicas_table(const RunSet& set, const TableOptions&) {
  Table table{
      "replicas",
      "Replica consistency at the end, and images per rank",
      {"parameters, buffers (batch-norm statistics): equal if their bits are, on all ranks; "
       "distance: of a rank's from rank 0's, over the length of rank 0's, the largest",
       "test %: of each rank's own network where ranks may differ, else of the one network",
       "orders, batches: of the run's epochs; batches are counted as sets of images. Shared "
       "images: used by more than one rank in an epoch, without the repeats that fill the last "
       "batch"},
      replicas_columns(),
      {}};
  for (const Run& run : set.runs)
    table.add(replicas_row(run), run.path.string());
  return table;
}

}  // namespace gradsync::report
