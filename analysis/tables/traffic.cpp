// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

struct TrafficRankRow : RankRow {
  TrafficFigures figures = {};
};

TableColumns<TrafficRankRow> traffic_rank_columns() {
  using Row = TrafficRankRow;
  TableColumns<Row> columns = rank_columns();
  columns.add({{"iterations", "n", "steady iterations", "/iteration/number",
                [](const Row& row) { return count_cell(row.figures.iterations); }}});
  for (std::size_t i = 0; i < kRowCategories; ++i)
    columns.add({{fmt::format("{}_bytes", kTrafficNames[i]), fmt::format("{} B", kTrafficNames[i]),
                  "mean per iteration", fmt::format("/traffic/{}", kTrafficNames[i]),
                  [i](const Row& row) { return Cell::of(row.figures.bytes[i], 0); },
                  i == static_cast<std::size_t>(Traffic::kGradients) ? 0 : 1}});
  columns.add({{"total_bytes", "total B", "sum of the categories", "/traffic/*",
                [](const Row& row) { return Cell::of(row.figures.total(), 0); }, 0},
               {"total_gb", "total GB", "sum of the categories / 1e9", "/traffic/*",
                [](const Row& row) { return Cell::of(1e-9 * row.figures.total(), 6); }}});
  return columns.add(name_column());
}

}  // namespace

Table make_traffic_table(const RunSet& set, const TableOptions&) {
  const auto columns = traffic_rank_columns();
  Table table = columns.table(
      "traffic", "Traffic of an iteration, by category",
      {"bytes of one iteration through the link of a rank, as the usual algorithm of each "
       "collective moves them (docs/numbers.md), not counted on the wire; mean over n "
       "iterations",
       "the row \"all\" is the sum over the ranks; what passes a root is counted at the sender and "
       "at the receiver, all else once; GB = 1e9 bytes",
       fmt::format("left out: {}", warmup_text(set))});
  for (const Run& run : set.runs) {
    const auto ranks = traffic_figures(*run.reader, run.steady);
    for (const std::size_t rank : run.steady.ranks)
      table.add(columns.cells({rank_row(run, rank), ranks[rank]}), run.path.string());
    table.add(columns.cells({rank_row(run, "all"), sum_of(ranks)}), run.path.string());
  }
  return table;
}

namespace {

/// What a run moved between two of its readings, per iteration, in one category.
struct CategoryRow : CellRow {
  const TrafficRow* start;
  const TrafficRow* end;
  std::size_t category = 0;

  using Counts = std::array<std::int64_t, kTrafficCategories>;
  double per_iteration(Counts RankTraffic::*what, std::size_t rank) const {
    const auto moved = (end->ranks[rank].*what)[category] - (start->ranks[rank].*what)[category];
    return static_cast<double>(moved) / static_cast<double>(end->iterations);
  }
  /// Sent by all ranks, which is what all received.
  double sent_by_all() const {
    double sum = 0;
    for (std::size_t rank = 0; rank < end->ranks.size(); ++rank)
      sum += per_iteration(&RankTraffic::sent_bytes, rank);
    return sum;
  }
  double before_first_iteration() const {
    double sum = 0;
    for (const RankTraffic& rank : start->ranks)
      sum += static_cast<double>(rank.sent_bytes[category]);
    return sum;
  }
  std::size_t last_rank() const { return end->ranks.size() - 1; }
  bool used() const {
    return per_iteration(&RankTraffic::calls, 0) > 0 || before_first_iteration() > 0;
  }
};

TableColumns<CategoryRow> category_columns(const GroupLabels& labels) {
  using Row = CategoryRow;
  const std::string sent = "/traffic_total/sent", received = "/traffic_total/received";
  TableColumns<Row> columns = labels.columns();
  columns.add(
      {{"category", "category", kLabel,
        [](const Row& row) { return std::string(kTrafficNames[row.category]); }, 0},
       {"iterations", "n", "iterations of the last process", "/traffic_total/iterations",
        [](const Row& row) { return count_cell(row.end->iterations); }},
       {"calls", "calls/it", "calls of rank 0 / n", "/traffic_total/calls",
        [](const Row& row) { return Cell::of(row.per_iteration(&RankTraffic::calls, 0), 2); }, 0},
       {"root_sent_bytes", "rank 0 sends B/it", "sent by rank 0 / n", sent,
        [](const Row& row) { return Cell::of(row.per_iteration(&RankTraffic::sent_bytes, 0), 1); },
        0},
       {"root_received_bytes", "receives B/it", "received by rank 0 / n", received,
        [](const Row& row) {
          return Cell::of(row.per_iteration(&RankTraffic::received_bytes, 0), 1);
        }},
       {"other_sent_bytes", "last rank sends B/it", "sent by the last rank / n", sent,
        [](const Row& row) {
          return Cell::of(row.per_iteration(&RankTraffic::sent_bytes, row.last_rank()), 1);
        }},
       {"other_received_bytes", "receives B/it", "received by the last rank / n", received,
        [](const Row& row) {
          return Cell::of(row.per_iteration(&RankTraffic::received_bytes, row.last_rank()), 1);
        }},
       {"all_sent_bytes", "all send B/it", "sum over the ranks of sent / n", sent,
        [](const Row& row) { return Cell::of(row.sent_by_all(), 1); }, 0},
       {"before_bytes", "before training B",
        "sum over the ranks of what was sent before the first iteration", sent,
        [](const Row& row) { return Cell::of(row.before_first_iteration(), 0); }}});
  return columns.add(name_column());
}

const TrafficRow* reading(const Run& run, const std::string& when) {
  const auto& rows = run.reader->traffic_totals();
  const auto found = std::ranges::find(rows, when, &TrafficRow::when);
  return found == rows.end() ? nullptr : &*found;
}

std::vector<std::string> total_notes(std::size_t without, const std::vector<std::string>& resumed) {
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
    result.push_back(
        fmt::format("left out: {} of earlier versions, or not ended", count_text(without, "run")));
  return result;
}

}  // namespace

Table make_traffic_total_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const auto columns = category_columns(labels);
  Table table = columns.table("traffic-total", "Traffic of the whole run per iteration", {});
  std::size_t without = 0;
  std::vector<std::string> resumed;
  for (const RunGroup& group : groups) {
    const Run& run = group.first();
    CategoryRow row{labels.row(group), reading(run, "start"), reading(run, "trained")};
    if (!row.start || !row.end || row.end->iterations < 1) {
      ++without;
      continue;
    }
    row.name = run.name;
    if (row.end->iterations < static_cast<std::int64_t>(run.reader->iterations()))
      resumed.push_back(
          fmt::format("{} ({} of {})", run.name, row.end->iterations, run.reader->iterations()));
    for (row.category = 0; row.category < kTrafficCategories; ++row.category)
      if (row.used()) table.add(columns.cells(row), run.path.string());
  }
  table.notes = total_notes(without, resumed);
  return table;
}

namespace {

struct StragglerRow : RankRow {
  std::string host = {};
  std::size_t iterations = 0;
  StragglerFigures figures = {};
};

TableColumns<StragglerRow> straggler_columns() {
  using Row = StragglerRow;
  const std::string arrivals = "/time/begin, /bucket/start";
  TableColumns<Row> columns = rank_columns();
  columns.add(
      {{"host", "host", kLabel, &Row::host},
       {"iterations", "n", "steady iterations", "/iteration/number",
        [](const Row& row) { return count_cell(row.iterations); }},
       {"suffered_ms", "suffered ms", "mean wait of an iteration", "/time/wait",
        [](const Row& row) { return ms_cell(row.figures.suffered_s); }, 0},
       {"caused_ms", "caused ms",
        "mean per iteration of the sum over collectives to which the rank came last, over the "
        "other ranks, of (its arrival - theirs)",
        arrivals, [](const Row& row) { return ms_cell(row.figures.caused_s); }, 0},
       {"caused_percent", "of all %", "caused / sum of caused over the ranks", arrivals,
        [](const Row& row) { return Cell::of(row.figures.caused_percent, 1); }},
       {"last_percent", "last %", "collectives to which the rank came last / all", arrivals,
        [](const Row& row) { return Cell::of(row.figures.last_percent, 1); }, 0}});
  return columns.add(name_column());
}

/// The most that any run leaves to chance.
std::string clock_note(double undecided_percent) {
  if (std::isnan(undecided_percent)) return "no run holds collectives of two ranks or more";
  return fmt::format(
      "clocks: in up to {:.1f} % of a run's collectives the last rank arrives after the one before "
      "it by less than the uncertainty of their clocks, so the order is unknown",
      undecided_percent);
}

}  // namespace

Table make_stragglers_table(const RunSet& set, const TableOptions&) {
  const auto columns = straggler_columns();
  Table table = columns.table("stragglers", "Who waits for whom", {});
  double undecided_percent = kNotMeasured;
  for (const Run& run : set.runs) {
    const Stragglers all = stragglers(*run.reader, run.steady);
    undecided_percent = std::fmax(undecided_percent, all.undecided_percent);
    for (const std::size_t rank : run.steady.ranks)
      table.add(columns.cells({rank_row(run, rank), run.reader->info().topology[rank].host,
                               all.iterations, all.ranks[rank]}),
                run.path.string());
  }
  table.notes = wait_notes(
      wait_kinds(set),
      "suffered: mean per iteration of wait, the time in a rank's collectives before the last rank "
      "arrived, without compute or communication",
      "suffered: mean per iteration of wait, the part of a rank's collectives above the shortest "
      "duration of the same collective over the ranks");
  table.notes.insert(
      table.notes.end(),
      {"caused: mean per iteration of the other ranks' wait for this one, from their arrivals at "
       "the collectives to which it came last; counted as if no rank could continue before the "
       "last one arrives, so the sums of the two columns may differ",
       clock_note(undecided_percent), fmt::format("left out: {}", warmup_text(set))});
  return table;
}

}  // namespace gradsync::report
