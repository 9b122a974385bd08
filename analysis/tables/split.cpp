// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

/// Parts of the iterations of a rank, or of the mean of all.
struct SplitRow : RankRow {
  SplitFigures figures = {};
};

struct SplitPart {
  Phase phase;
  const char* name;
  const char* head;
  int detail = 1;
};

constexpr std::array<SplitPart, 7> kSplitParts = {{{Phase::kCompute, "compute", "compute"},
                                                   {Phase::kCommBusy, "comm_busy", "comm", 2},
                                                   {Phase::kHidden, "hidden", "hidden"},
                                                   {Phase::kExposed, "exposed", "exposed"},
                                                   {Phase::kOther, "other", "other", 2},
                                                   {Phase::kWait, "wait", "wait"},
                                                   {Phase::kData, "data", "data", 2}}};

TableColumns<SplitRow> split_columns(int decimals) {
  using Row = SplitRow;
  const std::string mean = "mean over the steady iterations of the rank";
  TableColumns<Row> columns = rank_columns();
  columns.add({{"iterations", "n", "steady iterations", "/iteration/number",
                [](const Row& row) { return count_cell(row.figures.iterations); }, 2},
               {"iteration_ms", "iteration ms", mean, "/time/iteration", [=](const Row& row) {
                  return ms_cell(row.figures[Phase::kIteration], decimals);
                }}});
  for (const SplitPart& part : kSplitParts) {
    const std::string dataset = fmt::format("/time/{}", part.name);
    const auto part_s = [phase = part.phase](const Row& row) {
      return phase == Phase::kWait ? row.figures.wait_s() : row.figures[phase];
    };
    columns.add(
        {{fmt::format("{}_ms", part.name), fmt::format("{} ms", part.head), mean, dataset,
          [=](const Row& row) { return ms_cell(part_s(row), decimals); }, part.detail},
         {fmt::format("{}_percent", part.name), "%", mean + " / mean of the iteration",
          dataset + ", /time/iteration",
          [=](const Row& row) { return share_cell(part_s(row), row.figures[Phase::kIteration]); },
          2}});
  }
  return columns.add(name_column());
}

struct RunSplit {
  const Run* run;
  std::vector<SplitFigures> ranks;
};

std::string sum_note(const WaitKinds& kinds, const std::vector<RunSplit>& all) {
  double gap = kNotMeasured;
  const Run* worst = nullptr;
  for (const RunSplit& run : all)
    for (const SplitFigures& rank : run.ranks) {
      if (std::isnan(rank.gap()) || rank.gap() <= gap) continue;
      gap = rank.gap();
      worst = run.run;
    }
  const char* parts =
      kinds.apart ? "compute + exposed + wait + other" : "compute + exposed + other";
  if (std::isnan(gap)) return fmt::format("{} is not checked: parts were not measured", parts);
  if (gap <= kLargestGap) return fmt::format("{} = iteration, checked to 1 %", parts);
  return fmt::format(
      "WARNING: {} differs from the iteration by {:.1f} % in {}: its parts were not measured over "
      "the same iterations",
      parts, 1e2 * gap, worst->name);
}

std::vector<std::string> split_notes(const RunSet& set, const std::vector<RunSplit>& all) {
  const WaitKinds kinds = wait_kinds(set);
  const std::string plain =
      "compute: a rank computes; hidden: communication beside compute, which adds no time; "
      "exposed: "
      "communication that compute waits for; ";
  std::vector<std::string> result = wait_notes(
      kinds,
      plain +
          "wait: for a rank that is late; other: the rest, waiting for the loader (data) included",
      plain + "other: the rest, waiting for the loader (data) included");
  std::vector<std::string> sets = wait_notes(
      kinds,
      "as sets, with C the union of the compute intervals of a rank in an iteration of length W, K "
      "of the intervals in which data of its collectives could move, from the arrival of the last "
      "rank on, and S of those in which its collectives waited for that rank: compute = |C|, comm "
      "= "
      "|K|, hidden = |C and K|, exposed = |K without C|, wait = |S without C and K|, other = W - "
      "|C "
      "or K or S|",
      "as sets, with C the union of the compute intervals and K of the collectives' intervals of a "
      "rank in an iteration of length W: compute = |C|, comm = |K|, hidden = |C and K|, exposed = "
      "|K without C|, other = W - |C or K|");
  result.push_back(sum_note(kinds, all));
  result.push_back(
      fmt::format("means over n iterations; left out as warm-up: {}; % of the iteration; the row "
                  "\"mean\" is the mean over the ranks",
                  warmup_text(set)));
  result.insert(result.end(), sets.begin(), sets.end());
  add_waiting_note(set, result);
  return result;
}

}  // namespace

Table make_split_table(const RunSet& set, const TableOptions&) {
  std::vector<RunSplit> all;
  double largest_s = 0;
  for (const Run& run : set.runs) {
    all.push_back({&run, split_figures(*run.reader, run.steady)});
    for (const SplitFigures& rank : all.back().ranks)
      largest_s = std::fmax(largest_s, rank[Phase::kIteration]);
  }
  const auto columns = split_columns(ms_decimals(1e3 * largest_s));
  Table table = columns.table("split", "Where the iteration goes, measured", split_notes(set, all));
  for (const auto& [run, ranks] : all) {
    for (const std::size_t rank : run->steady.ranks)
      table.add(columns.cells({rank_row(*run, rank), ranks[rank]}), run->path.string());
    table.add(columns.cells({rank_row(*run, "mean"), mean_of(ranks)}), run->path.string());
  }
  return table;
}

namespace {

struct ProfileRow : CellRow {
  SplitFigures figures = {};

  double other_percent() const;
};

/// Beside each other in an iteration; what they leave of it is `other`.
constexpr std::array<SplitPart, 5> kStepParts = {{{Phase::kForward, "forward", "forward %"},
                                                  {Phase::kBackward, "backward", "backward %"},
                                                  {Phase::kExposed, "exposed", "exposed comm %"},
                                                  {Phase::kOptimizer, "optimizer", "optimizer %"},
                                                  {Phase::kData, "data", "data %"}}};

double ProfileRow::other_percent() const {
  double rest = 1e2 - 1e2 * figures.wait_part_s / figures[Phase::kIteration];
  for (const SplitPart& part : kStepParts)
    rest -= figures.percent(part.phase);
  return rest;
}

TableColumns<ProfileRow> profile_columns(const GroupLabels& labels, bool waits) {
  using Row = ProfileRow;
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"iterations", "n", "steady iterations of all repeats", "/iteration/number",
        [](const Row& row) { return count_cell(row.figures.iterations); }},
       {"iteration_ms", "step ms", "mean over ranks and n", "/time/iteration", [](const Row& row) {
          const double step_s = row.figures[Phase::kIteration];
          return ms_cell(step_s, ms_decimals(1e3 * step_s));
        }}});
  for (const SplitPart& part : kStepParts)
    columns.add({{fmt::format("{}_percent", part.name), part.head,
                  fmt::format("mean {} / mean iteration", part.name),
                  fmt::format("/time/{}, /time/iteration", part.name),
                  [phase = part.phase](const Row& row) {
                    return Cell::of(row.figures.percent(phase), 1);
                  }}});
  if (waits)
    columns.add({{"wait_percent", "straggler wait %", "mean wait / mean iteration",
                  "/time/wait, /time/iteration", [](const Row& row) {
                    return share_cell(row.figures.wait_s(), row.figures[Phase::kIteration]);
                  }}});
  columns.add({{"other_percent", "other %",
                fmt::format("100 - the {} parts before it", waits ? "six" : "five"),
                fmt::format("/time/forward, backward, exposed, optimizer, data, {}iteration",
                            waits ? "wait, " : ""),
                [](const Row& row) { return Cell::of(row.other_percent(), 1); }},
               {"hidden_percent", "hidden comm %", "mean hidden / mean iteration",
                "/time/hidden, /time/iteration",
                [](const Row& row) { return Cell::of(row.figures.percent(Phase::kHidden), 1); }}});
  return columns.add(name_column());
}

/// Mean over the repeats, each of them counting by its iterations.
SplitFigures mean_over_iterations(const RunGroup& group) {
  SplitFigures sum;
  sum.mean_s.fill(0);
  sum.wait_part_s = 0;
  for (const Run* run : group.repeats) {
    const SplitFigures one = mean_of(split_figures(*run->reader, run->steady));
    if (one.iterations == 0) continue;
    sum.iterations += one.iterations;
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      sum.mean_s[phase] += static_cast<double>(one.iterations) * one.mean_s[phase];
    sum.waits_apart &= one.waits_apart;
    sum.wait_part_s += static_cast<double>(one.iterations) * one.wait_part_s;
  }
  const auto iterations = static_cast<double>(sum.iterations);
  for (double& value : sum.mean_s)
    value /= iterations;  // 0 / 0 is NaN: nothing was measured
  sum.wait_part_s /= iterations;
  return sum;
}

std::vector<std::string> profile_notes(const RunSet& set, const WaitKinds& waits) {
  std::vector<std::string> result = {
      fmt::format("measured; % of the mean iteration over ranks, steady iterations and repeats; "
                  "the {} parts from forward to other sum to 100",
                  waits.apart ? "seven" : "six"),
      "exposed comm: communication that the step waits for; hidden comm overlaps forward and "
      "backward and is not part of the sum; data: waiting for the loader; other: the rest",
      fmt::format("left out: {}", warmup_text(set))};
  if (waits.apart)
    result.insert(result.begin() + 2,
                  "straggler wait: in collectives before the last rank arrived, when no data could "
                  "move, without compute");
  add_waiting_note(set, result);
  return result;
}

}  // namespace

Table make_profile_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const WaitKinds waits = wait_kinds(set);
  const auto columns = profile_columns(labels, waits.apart);
  Table table =
      columns.table("profile", "Where a step goes, measured, per mode", profile_notes(set, waits));
  for (const RunGroup& group : groups)
    table.add(columns.cells({labels.row(group), mean_over_iterations(group)}), sources_of(group));
  return table;
}

namespace {

struct BothSplitsRow : CellRow {
  SplitFigures measured;
  DerivedSplit derived;

  std::string remark() const;
};

std::string BothSplitsRow::remark() const {
  return remark_of(
      {derived.communication_s < 0 ? "NEGATIVE derived communication: faster than 1/n of one rank"
                                   : "",
       measured.gap() > kLargestGap ? "WARNING: the measured parts do not sum to the iteration"
                                    : "",
       derived.unfairness});
}

TableColumns<BothSplitsRow> both_splits_columns(const GroupLabels& labels, bool waits_apart,
                                                int decimals) {
  using Row = BothSplitsRow;
  const std::string mean = "mean over steady iterations, ranks and repeats: ";
  const auto time = [&](const char* name, const char* head, const std::string& formula,
                        const char* dataset, auto time_s, int detail = 1) {
    return RowColumn<Row>(
        name, head, formula, dataset,
        [=](const Row& row) { return ms_cell(time_s(row), decimals); }, detail);
  };
  const auto measured = [&](const char* name, const char* head, const std::string& formula,
                            const char* dataset, Phase phase, int detail = 1) {
    return time(
        name, head, mean + formula, dataset,
        [phase](const Row& row) { return row.measured[phase]; }, detail);
  };
  const char* bases = "/time/iteration of the run and of the base";
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"iterations", "n", "steady iterations of the repeats", "/iteration/warmup",
        [](const Row& row) { return count_cell(row.measured.iterations); }},
       measured("iteration_ms", "iteration ms", "W", "/time/iteration", Phase::kIteration, 0),
       measured("measured_compute_ms", "measured: compute ms", "|C|", "/time/compute",
                Phase::kCompute, 0),
       measured("measured_hidden_ms", "hidden ms", "|C and K|", "/time/hidden", Phase::kHidden),
       measured("measured_exposed_ms", "exposed ms", "|K without C|", "/time/exposed",
                Phase::kExposed, 0),
       time("measured_wait_ms", "straggler wait ms", mean + "|S without C and K|", "/time/wait",
            [](const Row& row) { return row.measured.wait_s(); }),
       measured("measured_other_ms", "other ms", waits_apart ? "W - |C or K or S|" : "W - |C or K|",
                "/time/other", Phase::kOther),
       {"measured_sum_percent", "sum %",
        waits_apart ? "(compute + exposed + straggler wait + other) / iteration"
                    : "(compute + exposed + other) / iteration",
        waits_apart ? "/time/compute, /time/exposed, /time/wait, /time/other, /time/iteration"
                    : "/time/compute, /time/exposed, /time/other, /time/iteration",
        [](const Row& row) {
          return share_cell(row.measured.parts_s(), row.measured[Phase::kIteration]);
        }},
       {"derived_base", "derived: base", [](const Row& row) { return row.derived.base; }},
       time("derived_base_ms", "T(1) ms",
            "mean iteration of the base x global batch / the base's global batch", bases,
            [](const Row& row) { return row.derived.one_rank_s; }),
       time("derived_compute_ms", "derived: compute ms", "T(1)/n", bases,
            [](const Row& row) { return row.derived.compute_s; }),
       time(
           "derived_communication_ms", "derived: communication ms", "T(n) - T(1)/n", bases,
           [](const Row& row) { return row.derived.communication_s; }, 0),
       {"remark", "remark", &Row::remark, 2}});
  return columns.add(name_column());
}

std::vector<std::string> both_splits_notes(const WaitKinds& waits, bool negative) {
  std::vector<std::string> result = wait_notes(
      waits,
      "measured: from the intervals that each rank recorded, C of computing, K of collectives from "
      "the arrival of the last rank on, when data can move, and S of collectives before that, in "
      "an iteration of length W; compute = |C|, of which hidden = |C and K| has communication "
      "beside it; exposed = |K without C|; straggler wait = |S without C and K|; other = W - |C or "
      "K or S|; compute + exposed + straggler wait + other = iteration (sum 100 %)",
      "measured: from the intervals that each rank recorded, C of computing and K of collectives "
      "in an iteration of length W; compute = |C|, of which hidden = |C and K| has communication "
      "beside it; exposed = |K without C|; other = W - |C or K|; compute + exposed + other = "
      "iteration (sum 100 %)");
  result.insert(
      result.end(),
      {"derived: as in reports with epoch times only: compute = T(1)/n, communication = T(n) - "
       "T(1)/n, with T(1) the mean iteration of the base on 1 rank for the same number of images. "
       "It counts as communication all that does not scale: waiting, slower kernels at a small "
       "batch, shared caches and memory, the exchange; hidden communication is not in it",
       "means over steady iterations, ranks, repeats"});
  if (negative)
    result.emplace_back(
        "negative derived communication is shown as it is: n ranks took less than 1/n of the time "
        "of one. No exchange takes negative time, so T(1)/n is not the compute time of n ranks "
        "here: the base differs (threads, clocks), or a smaller share fits the caches better");
  return result;
}

}  // namespace

Table make_compute_comm_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  std::vector<BothSplitsRow> rows;
  bool negative = false;
  double largest_s = 0;
  GroupSplits splits(groups);
  for (const RunGroup& group : groups) {
    rows.push_back({labels.row(group), splits.measured(group), splits.derived(group)});
    negative |= rows.back().derived.communication_s < 0;
    largest_s = std::fmax(largest_s, rows.back().measured[Phase::kIteration]);
  }
  const WaitKinds waits = wait_kinds(set);
  const auto columns = both_splits_columns(labels, waits.apart, ms_decimals(1e3 * largest_s));
  Table table = columns.table("compute-comm", "Compute and communication, measured and derived",
                              both_splits_notes(waits, negative));
  add_waiting_note(set, table.notes);
  for (const BothSplitsRow& row : rows)
    table.add(columns.cells(row), row.derived.sources);
  return table;
}

}  // namespace gradsync::report
