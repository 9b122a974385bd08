#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

using Counts = std::array<std::int64_t, kTrafficCategories>;

/// What a run moved between two of its readings, per iteration.
class Moved {
 public:
  Moved(const TrafficRow& start, const TrafficRow& end) : start_(start), end_(end) {}

  double per_iteration(Counts RankTraffic::*what, std::size_t category, std::size_t rank) const {
    const auto moved = (end_.ranks[rank].*what)[category] - (start_.ranks[rank].*what)[category];
    return static_cast<double>(moved) / static_cast<double>(end_.iterations);
  }
  /// Sent by all ranks, which is what all received.
  double sent_by_all(std::size_t category) const {
    double sum = 0;
    for (std::size_t rank = 0; rank < end_.ranks.size(); ++rank)
      sum += per_iteration(&RankTraffic::sent_bytes, category, rank);
    return sum;
  }
  double before_first_iteration(std::size_t category) const {
    double sum = 0;
    for (const RankTraffic& rank : start_.ranks)
      sum += static_cast<double>(rank.sent_bytes[category]);
    return sum;
  }
  double iterations() const { return static_cast<double>(end_.iterations); }
  std::size_t last_rank() const { return end_.ranks.size() - 1; }

 private:
  const TrafficRow &start_, &end_;
};

const TrafficRow* reading(const Run& run, const std::string& when) {
  const auto& rows = run.reader->traffic_totals();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.when == when; });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<Column> traffic_total_columns(const GroupLabels& labels) {
  const std::string totals = "/traffic_total";
  std::vector<Column> result = labels.columns();
  const std::vector<Column> own = {
      {"category", "category", true},
      {"iterations", "n", false, "iterations of the last process", totals + "/iterations"},
      {"calls", "calls/it", false, "calls of rank 0 / n", totals + "/calls"},
      {"root_sent_bytes", "rank 0 sends B/it", false, "sent by rank 0 / n", totals + "/sent"},
      {"root_received_bytes", "receives B/it", false, "received by rank 0 / n",
       totals + "/received"},
      {"other_sent_bytes", "last rank sends B/it", false, "sent by the last rank / n",
       totals + "/sent"},
      {"other_received_bytes", "receives B/it", false, "received by the last rank / n",
       totals + "/received"},
      {"all_sent_bytes", "all send B/it", false, "sum over the ranks of sent / n",
       totals + "/sent"},
      {"before_bytes", "before training B", false,
       "sum over the ranks of what was sent before the first iteration", totals + "/sent"},
      run_name_column()};
  result.insert(result.end(), own.begin(), own.end());
  keep(result, {"category", "calls", "root_sent_bytes", "all_sent_bytes"});
  return result;
}

std::vector<Cell> traffic_total_row(const GroupLabels& labels, const RunGroup& group,
                                    const Moved& moved, std::size_t category) {
  std::vector<Cell> cells = labels.cells(group);
  cells.emplace_back(std::string(kTrafficNames[category]));
  cells.push_back(Cell::count(moved.iterations()));
  cells.push_back(Cell::of(moved.per_iteration(&RankTraffic::calls, category, 0), 2));
  for (const std::size_t rank : {std::size_t{0}, moved.last_rank()}) {
    cells.push_back(Cell::of(moved.per_iteration(&RankTraffic::sent_bytes, category, rank), 1));
    cells.push_back(Cell::of(moved.per_iteration(&RankTraffic::received_bytes, category, rank), 1));
  }
  cells.push_back(Cell::of(moved.sent_by_all(category), 1));
  cells.push_back(Cell::of(moved.before_first_iteration(category), 0));
  cells.emplace_back(group.first().name);
  return cells;
}

/// "ddp-r2 (8 of 20)".
std::string resumed_text(const Run& run, const TrafficRow& end) {
  return fmt::format("{} ({} of {})", run.name, end.iterations, run.reader->iterations());
}

std::vector<std::string> traffic_total_notes(std::size_t without,
                                             const std::vector<std::string>& resumed) {
  std::vector<std::string> result = {
      "everything that the ranks send and receive from the first iteration to the end of training, "
      "also between iterations (rows for the run file, evaluation, checkpoints), over the number "
      "of iterations; by the usual algorithm of each collective (docs/numbers.md)",
      "of repeats the first; categories without calls are not shown"};
  if (!resumed.empty())
    result.insert(
        result.begin(),
        fmt::format("resumed runs, of which the last process alone counts, from its first "
                    "iteration on (n of the run's iterations): {}",
                    fmt::join(resumed, ", ")));
  if (without > 0)
    result.push_back(fmt::format("left out: {} runs of earlier versions, or not ended", without));
  return result;
}

}  // namespace

Table make_traffic_total_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  Table table{"traffic-total",
              "Traffic of the whole run per iteration",
              {},
              traffic_total_columns(labels),
              {}};
  std::size_t without = 0;
  std::vector<std::string> resumed;
  for (const RunGroup& group : groups) {
    const TrafficRow *start = reading(group.first(), "start"),
                     *end = reading(group.first(), "trained");
    if (!start || !end || end->iterations < 1) {
      ++without;
      continue;
    }
    const Run& run = group.first();
    if (end->iterations < static_cast<std::int64_t>(run.reader->iterations()))
      resumed.push_back(resumed_text(run, *end));
    const Moved moved(*start, *end);
    for (std::size_t category = 0; category < kTrafficCategories; ++category) {
      const bool used = moved.per_iteration(&RankTraffic::calls, category, 0) > 0 ||
                        moved.before_first_iteration(category) > 0;
      if (used)
        table.add(traffic_total_row(labels, group, moved, category), group.first().path.string());
    }
  }
  table.notes = traffic_total_notes(without, resumed);
  return table;
}

}  // namespace gradsync::report
