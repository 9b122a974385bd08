#include "analysis/model/what_if.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/model/doubt.h"
#include "analysis/tables/model_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kCaseColumn = 4, kStepColumn = 8, kBestColumn = 13;
constexpr double kAsGood = 0.005;  ///< as --bucket-cap auto takes

std::vector<Column> what_if_columns() {
  const std::string from = "/bucket, /time, /calibration";
  std::vector<Column> result = {
      {"mode", "mode", true},
      {"model", "model", true},
      {"ranks", "ranks", false, "number of ranks", "/topology/rank"},
      {"batch_per_rank", "batch/rank", false, "option of the run, or predicted", "/config"},
      {"case", "case", true},
      {"messages", "messages", false, "number of messages replayed", from},
      {"payload_bytes", "payload", false, "sum of the messages of one rank", "/bucket/bytes"},
      {"measured_ms", "measured ms", false, "median iteration of the slowest rank",
       "/time/iteration"},
      {"step_ms", "step ms", false, "compute + replayed exposed + wait + other", from},
      {"exposed_ms", "exposed ms", false, "max(0, end of the last message - end of backward)",
       from},
      {"wait_ms", "wait ms", false, "compute * (0.5^(1/n) quantile of relative compute - 1)",
       "/time/compute"},
      {"exposed_and_wait_percent", "exposed + wait %", false, "(exposed + wait)/step", from},
      {"change_percent", "change %", false, "step/step as recorded - 1", from},
      {"best", "best", true},
      {"run", "run", true},
  };
  keep(result, {"case", "step_ms", "change_percent", "best"});
  return result;
}

struct Case {
  std::string name;
  WhatIf change;
};

std::vector<Case> cases_of(const FamilyFit& fit, const CellFacts& cell, const WhatIf& change) {
  std::vector<Case> cases = {{"as recorded", {}}};
  if (!change.text.empty()) cases.push_back({change.text, change});
  if (!cell.overlapped()) return cases;
  for (const double cap : cap_ladder(what_if(fit, cell, {}).bytes)) {
    WhatIf with_cap = change;
    with_cap.bucket_cap_bytes = cap;
    cases.push_back({"cap " + format_bytes(std::llround(cap)), with_cap});
  }
  return cases;
}

/// The largest cap whose step is as short as the shortest to kAsGood: fewer, larger messages rest
/// less on the law's latency.
void mark_best(std::size_t first, Table& table) {
  const auto step_ms = [&](std::size_t row) {
    return table.rows[row][kCaseColumn].text.starts_with("cap ")
               ? table.rows[row][kStepColumn].number
               : kNotMeasured;
  };
  double least_ms = kNotMeasured;
  for (std::size_t row = first; row < table.rows.size(); ++row)
    least_ms = std::fmin(least_ms, step_ms(row));
  for (std::size_t row = table.rows.size(); row-- > first;)
    if (step_ms(row) <= least_ms * (1 + kAsGood)) {
      table.rows[row][kBestColumn] = Cell("best cap");
      return;
    }
}

struct ChangedFamily {
  FamilyFit fit;
  WhatIf change;  ///< with the laws of its network
};

/// `judged`: whether the fit may say which cap is best.
void add_cell(const ChangedFamily& family, const CellFacts& cell, bool judged,
              const std::string& source, const std::string& name, Table& table) {
  const FamilyFit& fit = family.fit;
  const std::size_t first = table.rows.size();
  const double recorded_s = what_if(fit, cell, {}).parts.total_s();
  for (const Case& one : cases_of(fit, cell, family.change)) {
    const WhatIfResult result = what_if(fit, cell, one.change);
    const double step_s = result.parts.total_s();
    const bool recorded = table.rows.size() == first;
    table.add({cell.mode_text(), cell.model, Cell::count(one.change.ranks.value_or(cell.ranks)),
               Cell::count(positive(one.change.batch.value_or(cell.batch))), one.name,
               Cell::count(static_cast<double>(result.messages)), Cell::count(result.bytes),
               ms_cell(recorded ? cell.medians.iteration_s : kNotMeasured), ms_cell(step_s),
               ms_cell(result.parts.exposed_s), ms_cell(result.parts.wait_s),
               Cell::of(finite_or_none(1e2 * result.exposed_share()), 1),
               Cell::of(finite_or_none(1e2 * (step_s / recorded_s - 1)), 1), Cell(""), name},
              source);
  }
  if (judged) mark_best(first, table);
}

/// The cells of a family on its largest number of ranks, if that is more than one.
FamilyCells what_if_largest(const FamilyCells& family) {
  double most = 2;
  for (const CellFacts* cell : family)
    most = std::max(most, cell->ranks);
  FamilyCells cells;
  for (const CellFacts* cell : family)
    if (cell->ranks == most && cell->exchanges()) cells.push_back(cell);
  return cells;
}

std::vector<std::string> what_if_notes() {
  return {
      "replay of the recorded ready times on one channel: start = max(ready, end before), end = "
      "start + t(S, n); exposed = what ends after the backward pass; modes that do not overlap: "
      "all",
      "a new cap divides the recorded bytes again: those of a recorded bucket are taken to become "
      "ready "
      "evenly between the bucket before and its own; cuts may fall inside a parameter; the first "
      "bucket is as recorded, at most the cap; caps count fp32 bytes",
      "t(S, n) from table model-fit times its slowdown; bandwidth and latency given replace it; "
      "converting to bf16 or fp16 costs nothing here; first row: the error of the replay against "
      "the measurement",
      "best cap: the largest whose step is at most 0.5 % longer than the shortest; none where the "
      "law "
      "does not describe the collectives or a coefficient is at its bound 0",
      "no interval is shown: the runs hold no measurement of the changed exchange from which its "
      "coverage would follow",
      "the cells of each family on the most ranks; name single runs for others"};
}

void what_if_add_once(const std::string& note, Table& table) {
  if (std::find(table.notes.begin(), table.notes.end(), note) == table.notes.end())
    table.notes.push_back(note);
}

/// What the laws of another network were fitted to, and how well.
void add_network_notes(const WhatIf& change, const std::vector<Curves>& network, Table& table) {
  std::set<std::int64_t> ranks;
  for (const Curves& curves : network)
    ranks.insert(curves.ranks);
  for (const auto& [kind, law] : change.network_laws) {
    const std::string name =
        fmt::format("network {}, {}", change.network->path.string(), collective_name(kind));
    if (!law.fit.usable()) {
      what_if_add_once(name + ": no curve of two sizes or more: n/a", table);
      continue;
    }
    what_if_add_once(
        fmt::format("{}: {} of {} ranks, {} points: latency {:.2f} us, {:.3f} GB/s, residual "
                    "{:.0f} % (root mean square), times the slowdown {:.2f} of training here",
                    name, law.source, fmt::join(ranks, ", "), law.points.size(),
                    1e6 * law.fit.first, 1e-9 / law.fit.second, 1e2 * law.fit.relative_rms(),
                    change.network_slowdown),
        table);
  }
}

std::string doubt_of(const ChangedFamily& family) {
  return family.change.network ? law_doubt(family.change.network_laws) : law_doubt(family.fit);
}

void what_if_add_family(const RunStudy& runs, const FamilyCells& cells, const WhatIf& change,
                        Table& table) {
  const FamilyCells largest = what_if_largest(cells);
  if (largest.empty()) return;
  const StudyFacts& study = runs.facts();
  const FamilyFit fit = fit_family(cells, study.calibration);
  const ChangedFamily family{fit, with_network_laws(fit, change)};
  const std::string doubt = doubt_of(family);
  for (const CellFacts* cell : largest) {
    const auto index = static_cast<std::size_t>(cell - study.cells.data());
    const MeasuredCell& measured = runs.cells()[index];
    const bool judged = doubt.empty() && !measured.short_of_cores;
    std::string sources = family_sources(study, {cell});
    if (change.network) sources += ", " + change.network->path.string();
    add_cell(family, *cell, judged, sources, measured.run().name, table);
    if (cell->overlapped() && !judged)
      what_if_add_once(
          fmt::format("no best cap for {}, {}: {}", cell->model, cell->mode,
                      doubt.empty() ? "the ranks had fewer cores than threads" : doubt),
          table);
  }
  add_missing_note(fit, table);
  add_network_notes(family.change, change.network_curves, table);
}

}  // namespace

Table make_what_if_table(const RunStudy& runs, const TableOptions& options) {
  Table table{
      "what-if", "What if: the recorded exchange replayed", what_if_notes(), what_if_columns(), {}};
  for (const FamilyCells& family : families(runs.facts()))
    what_if_add_family(runs, family, options.what_if, table);
  if (table.rows.empty())
    table.notes.push_back("not shown: no run that exchanges on several ranks");
  return table;
}

}  // namespace gradsync::report
