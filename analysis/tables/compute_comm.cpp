#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/split_figures.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

struct GroupSplit {
  const RunGroup* group;
  SplitFigures measured;
  DerivedSplit derived;
};

std::vector<Column> compute_comm_columns(const GroupLabels& labels, const WaitKinds& waits) {
  std::vector<Column> result = labels.columns();
  const std::string mean = "mean over steady iterations, ranks and repeats: ";
  const std::string derived = "/time/iteration of the run and of the base";
  const std::vector<Column> rest = {
      repeats_column(),
      {"iterations", "n", false, "steady iterations of the repeats", "/iteration/warmup"},
      {"iteration_ms", "iteration ms", false, mean + "W", "/time/iteration"},
      {"measured_compute_ms", "measured: compute ms", false, mean + "|C|", "/time/compute"},
      {"measured_hidden_ms", "hidden ms", false, mean + "|C and K|", "/time/hidden"},
      {"measured_exposed_ms", "exposed ms", false, mean + "|K without C|", "/time/exposed"},
      {"measured_wait_ms", "straggler wait ms", false, mean + "|S without C and K|", "/time/wait"},
      {"measured_other_ms", "other ms", false,
       mean + (waits.apart ? "W - |C or K or S|" : "W - |C or K|"), "/time/other"},
      {"measured_sum_percent", "sum %", false,
       waits.apart ? "(compute + exposed + straggler wait + other) / iteration"
                   : "(compute + exposed + other) / iteration",
       waits.apart ? "/time/compute, /time/exposed, /time/wait, /time/other, /time/iteration"
                   : "/time/compute, /time/exposed, /time/other, /time/iteration"},
      {"derived_base", "derived: base", true},
      {"derived_base_ms", "T(1) ms", false,
       "mean iteration of the base x global batch / the base's global batch", derived},
      {"derived_compute_ms", "derived: compute ms", false, "T(1)/n", derived},
      {"derived_communication_ms", "derived: communication ms", false, "T(n) - T(1)/n", derived},
      {"remark", "remark", true, "", "", 2},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result,
       {"iteration_ms", "measured_compute_ms", "measured_exposed_ms", "derived_communication_ms"});
  return result;
}

std::string compute_comm_remark(const GroupSplit& one) {
  std::string text;
  if (one.derived.communication_s < 0)
    text = "NEGATIVE derived communication: faster than 1/n of one rank";
  if (one.measured.gap() > kLargestGap)
    text += fmt::format("{}WARNING: the measured parts do not sum to the iteration",
                        text.empty() ? "" : "; ");
  if (!one.derived.unfairness.empty()) text += (text.empty() ? "" : "; ") + one.derived.unfairness;
  return text;
}

std::vector<Cell> compute_comm_row(const GroupLabels& labels, const GroupSplit& one, int decimals) {
  const auto ms = [&](double value_s) { return Cell::of(1e3 * value_s, decimals); };
  const SplitFigures& measured = one.measured;
  std::vector<Cell> cells = labels.cells(*one.group);
  const std::vector<Cell> rest = {
      repeats_cell(*one.group),
      Cell::count(static_cast<double>(measured.iterations)),
      ms(measured[Phase::kIteration]),
      ms(measured[Phase::kCompute]),
      ms(measured[Phase::kHidden]),
      ms(measured[Phase::kExposed]),
      ms(measured.wait_s()),
      ms(measured[Phase::kOther]),
      Cell::of(1e2 * measured.parts_s() / measured[Phase::kIteration], 1),
      one.derived.base,
      ms(one.derived.one_rank_s),
      ms(one.derived.compute_s),
      ms(one.derived.communication_s),
      compute_comm_remark(one),
      group_name_cell(*one.group)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
}

std::vector<std::string> compute_comm_notes(const WaitKinds& waits, bool negative) {
  std::vector<std::string> result = wait_notes(
      waits,
      "measured: from the intervals that each rank recorded, C of computing, K of collectives from "
      "the arrival of the last rank on, when data can move, and S of collectives before that, in "
      "an iteration of length W; compute = |C|, of which hidden = |C and K| has communication "
      "beside it; exposed = |K without C|; straggler wait = |S without C and K|; other = W - |C or "
      "K or S|; compute + exposed + straggler wait + other = iteration (sum 100 %)",
      "measured: from the intervals that each rank recorded, C of computing and K of collectives "
      "in "
      "an iteration of length W; compute = |C|, of which hidden = |C and K| has communication "
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

int compute_comm_decimals_for(const std::vector<GroupSplit>& all) {
  double largest_s = 0;
  for (const GroupSplit& one : all)
    largest_s = std::fmax(largest_s, one.measured[Phase::kIteration]);
  return ms_decimals(1e3 * largest_s);
}

}  // namespace

Table make_compute_comm_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  std::vector<GroupSplit> all;
  bool negative = false;
  GroupSplits splits(groups);
  for (const RunGroup& group : groups) {
    all.push_back({&group, splits.measured(group), splits.derived(group)});
    negative |= all.back().derived.communication_s < 0;
  }
  const WaitKinds waits = wait_kinds(set);
  Table table{"compute-comm",
              "Compute and communication, measured and derived",
              compute_comm_notes(waits, negative),
              compute_comm_columns(labels, waits),
              {}};
  add_waiting_note(set, table.notes);
  const int decimals = compute_comm_decimals_for(all);
  for (const GroupSplit& one : all)
    table.add(compute_comm_row(labels, one, decimals), one.derived.sources);
  return table;
}

}  // namespace gradsync::report
