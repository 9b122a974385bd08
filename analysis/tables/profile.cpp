#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/split_figures.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

struct ProfilePart {
  Phase phase;
  const char* name;
  const char* head;
};

/// Beside each other in an iteration; what they leave of it is `other`.
constexpr std::array<ProfilePart, 5> kProfileParts = {
    {{Phase::kForward, "forward", "forward %"},
     {Phase::kBackward, "backward", "backward %"},
     {Phase::kExposed, "exposed", "exposed comm %"},
     {Phase::kOptimizer, "optimizer", "optimizer %"},
     {Phase::kData, "data", "data %"}}};

std::vector<Column> profile_columns(const GroupLabels& labels, bool waits) {
  std::vector<Column> result = labels.columns();
  result.push_back(repeats_column());
  result.push_back(
      {"iterations", "n", false, "steady iterations of all repeats", "/iteration/number"});
  result.push_back({"iteration_ms", "step ms", false, "mean over ranks and n", "/time/iteration"});
  for (const ProfilePart& part : kProfileParts)
    result.push_back({fmt::format("{}_percent", part.name), part.head, false,
                      fmt::format("mean {} / mean iteration", part.name),
                      fmt::format("/time/{}, /time/iteration", part.name)});
  if (waits)
    result.push_back({"wait_percent", "straggler wait %", false, "mean wait / mean iteration",
                      "/time/wait, /time/iteration"});
  result.push_back({"other_percent", "other %", false,
                    fmt::format("100 - the {} parts before it", waits ? "six" : "five"),
                    fmt::format("/time/forward, backward, exposed, optimizer, data, {}iteration",
                                waits ? "wait, " : "")});
  result.push_back({"hidden_percent", "hidden comm %", false, "mean hidden / mean iteration",
                    "/time/hidden, /time/iteration"});
  result.push_back(group_name_column());
  return result;
}

/// Mean over the repeats, each of them counting by its iterations.
SplitFigures profile_figures_of(const RunGroup& group) {
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

double other_percent(const SplitFigures& figures) {
  double rest = 1e2 - 1e2 * figures.wait_part_s / figures[Phase::kIteration];
  for (const ProfilePart& part : kProfileParts)
    rest -= figures.percent(part.phase);
  return rest;
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
  Table table{"profile",
              "Where a step goes, measured, per mode",
              profile_notes(set, waits),
              profile_columns(labels, waits.apart),
              {}};
  for (const RunGroup& group : groups) {
    const SplitFigures figures = profile_figures_of(group);
    std::vector<Cell> cells = labels.cells(group);
    cells.push_back(repeats_cell(group));
    cells.push_back(Cell::count(static_cast<double>(figures.iterations)));
    cells.push_back(
        Cell::of(1e3 * figures[Phase::kIteration], ms_decimals(1e3 * figures[Phase::kIteration])));
    for (const ProfilePart& part : kProfileParts)
      cells.push_back(Cell::of(figures.percent(part.phase), 1));
    if (waits.apart)
      cells.push_back(Cell::of(1e2 * figures.wait_s() / figures[Phase::kIteration], 1));
    cells.push_back(Cell::of(other_percent(figures), 1));
    cells.push_back(Cell::of(figures.percent(Phase::kHidden), 1));
    cells.push_back(group_name_cell(group));
    table.add(cells, sources_of(group));
  }
  return table;
}

}  // namespace gradsync::report
