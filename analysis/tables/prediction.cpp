// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/model/doubt.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/what_if.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// A quotient whose divisor was 0 is none: NaN.
double finite_or_none(double value) {
  return std::isfinite(value) ? value : kNotMeasured;
}

Cell model_ms_cell(double time_s) {
  return Cell::of(finite_or_none(1e3 * time_s), ms_decimals(1e3 * time_s));
}

/// The files of a family's cells and of the calibration they are held against, with ", " between.
std::string family_sources(const Cells& cells) {
  std::string text;
  std::set<std::string> files;
  for (const StudyCell* cell : cells) {
    text += (text.empty() ? "" : ", ") + sources_of(cell->group);
    if (!cell->calibration_file.empty()) files.insert(cell->calibration_file);
  }
  for (const std::string& file : files)
    text += ", " + file;
  return text;
}

/// Notes that say what the model lacks: a law, or calibration. Each text once a table.
void add_missing_note(const FamilyFit& fit, Table& table) {
  const StudyCell& first = *fit.cells.front().cell;
  if (!fit.missing.empty())
    add_once<std::string>(table.notes,
                          "missing: " + first.model + ", " + first.mode + ": " + fit.missing);
  if (!fit.borrowed.empty())
    add_once<std::string>(table.notes, first.model + ", " + first.mode + ": " + fit.borrowed +
                                           "; intervals are wider by all that it takes");
  const bool from_training = std::ranges::any_of(fit.laws, [](const auto& law) {
    return law.second.fit.usable() && !law.second.calibrated && !law.second.borrowed;
  });
  if (from_training)
    add_once<std::string>(
        table.notes,
        "missing: calibration of these ranks (gradsync-train --calibrate); alpha and beta are "
        "fitted to the collectives in training instead, which overlap with compute");
}

enum class PredictedKind { kLeftOut, kNotMeasured, kExtrapolated };

/// A cell that the model predicts without having been fitted to it.
struct PredictedRow {
  const StudyCell* of_family;  ///< one of its cells
  double family;               ///< its number in the table
  std::size_t fitted_to;       ///< cells
  double ranks, batch;
  PredictedKind kind;
  double measured_s = kNotMeasured;
  Estimate total_s = {};
  Prediction parts = {};
  IntervalCoverage coverage = {};
  std::string remark = {};  ///< why it is not predicted

  /// An interval of unknown coverage is not shown.
  double shown(double end_s) const { return coverage.cells > 0 ? end_s : kNotMeasured; }
  double error_percent() const { return finite_or_none(1e2 * (total_s.value / measured_s - 1)); }
};

TableColumns<PredictedRow> predicted_columns() {
  using Row = PredictedRow;
  const std::string model = "/time, /bucket, /calibration";
  return {{"mode", "mode", kLabel, [](const Row& row) { return row.of_family->mode_text(); }},
          {"model", "model", kLabel, [](const Row& row) { return row.of_family->model; }},
          {"ranks", "ranks", "number of ranks", "/topology/rank",
           [](const Row& row) { return Cell::count(row.ranks); }},
          {"batch_per_rank", "batch/rank", "option of the run, or predicted", "/config",
           [](const Row& row) { return Cell::count(row.batch); }},
          {"kind", "cell", kLabel,
           [](const Row& row) {
             return row.kind == PredictedKind::kLeftOut       ? "left out"
                    : row.kind == PredictedKind::kNotMeasured ? "not measured"
                                                              : "extrapolated";
           },
           0},
          {"measured_ms", "measured ms", "median iteration of the slowest rank", "/time/iteration",
           [](const Row& row) { return model_ms_cell(row.measured_s); }, 0},
          {"predicted_ms", "predicted ms", "compute + exposed + wait + other", model,
           [](const Row& row) { return model_ms_cell(row.total_s.value); }, 0},
          {"low_ms", "low ms", "predicted x (1 - most that a cell left out was off), 0 or more",
           model, [](const Row& row) { return model_ms_cell(row.shown(row.total_s.low)); }},
          {"high_ms", "high ms", "predicted x (1 + most that a cell left out was off)", model,
           [](const Row& row) { return model_ms_cell(row.shown(row.total_s.high)); }},
          {"held", "held", [](const Row& row) { return row.coverage.text(); }},
          {"error_percent", "error %", "predicted/measured - 1", model,
           [](const Row& row) { return Cell::of(row.error_percent(), 1); }, 0},
          {"compute_ms", "compute ms", "a + c*b", "/time/compute",
           [](const Row& row) { return model_ms_cell(row.parts.compute_s); }},
          {"exposed_ms", "exposed ms", "replay of the recorded ready times", model,
           [](const Row& row) { return model_ms_cell(row.parts.exposed_s); }},
          {"wait_ms", "wait ms", "compute * (0.5^(1/n) quantile of relative compute - 1)",
           "/time/compute", [](const Row& row) { return model_ms_cell(row.parts.wait_s); }},
          {"other_ms", "other ms", "median iteration - compute - exposed - wait", "/time",
           [](const Row& row) { return model_ms_cell(row.parts.other_s); }},
          {"fitted_to", "fitted to", "number of cells fitted to", "/time",
           [](const Row& row) { return count_cell(row.fitted_to); }},
          {"family", "family", "number of the family in this table", "/config",
           [](const Row& row) { return Cell::count(row.family); }},
          {"remark", "remark", &Row::remark, 2}};
}

/// Coverage of a family, or of all, by what its rows predict.
struct FamilyCoverage {
  IntervalCoverage left_out, more_ranks;
};

struct PredictedFamily {
  const std::vector<StudyCell>& study;
  const Cells& cells;
  double number;  ///< in the table
  std::vector<LeftOutCell> left_out;
  FamilyFit fit;

  PredictedRow row(const FamilyFit& from, double ranks, double batch, PredictedKind kind) const {
    PredictedRow row{cells.front(), number, from.cells.size(), ranks, batch, kind};
    row.parts = predict(from, ranks, batch);
    return row;
  }
  std::string name() const {
    return fmt::format("{}, {} (family {:.0f})", cells.front()->model, cells.front()->mode, number);
  }
  double most_ranks() const {
    double most = 1;
    for (const StudyCell* cell : cells)
      most = std::max(most, cell->ranks);
    return most;
  }
};

/// Each cell as predicted from the others. Their coverage says how many of the intervals, which
/// rest on the others as well, held theirs.
std::vector<PredictedRow> left_out_rows(const PredictedFamily& family) {
  std::vector<PredictedRow> rows;
  IntervalCoverage coverage;
  for (const LeftOutCell& one : family.left_out) {
    Cells others = family.cells;
    std::erase(others, one.cell);
    PredictedRow& row = rows.emplace_back(
        family.row(one.fit, one.cell->ranks, one.cell->batch, PredictedKind::kLeftOut));
    row.measured_s = one.cell->medians.iteration_s;
    row.total_s = predict_interval(one.fit, leave_out_each(family.study, others, {one.cell}),
                                   one.cell->ranks, one.cell->batch);
    coverage.add(row.total_s, row.measured_s);
  }
  for (PredictedRow& row : rows)
    row.coverage = coverage;
  return rows;
}

std::set<double> as_set(const std::vector<std::int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

std::set<double> ranks_wanted(const PredictedFamily& family, const TableOptions& options) {
  if (!options.predict_ranks.empty()) return as_set(options.predict_ranks);
  const double most = family.most_ranks();
  return {2 * most, 4 * most, 8 * most};
}

/// Batches that are asked for within the range measured; a note says which are outside it.
std::set<double> batches_wanted(const PredictedFamily& family, const TableOptions& options,
                                Table& table) {
  std::set<double> measured;
  for (const StudyCell* cell : family.cells)
    if (cell->batch > 0) measured.insert(cell->batch);
  if (options.predict_batches.empty()) return measured;
  std::set<double> batches = as_set(options.predict_batches);
  std::erase_if(batches, [&](double batch) {
    const bool outside =
        measured.empty() || batch < *measured.begin() || batch > *measured.rbegin();
    if (outside)
      add_once<std::string>(
          table.notes, fmt::format("not predicted: {}: batch {:.0f} is outside what was measured",
                                   family.name(), batch));
    return outside;
  });
  return batches;
}

/// Rows for further ranks and batches; with a doubt in the fit they say why they hold no numbers.
std::vector<PredictedRow> further_rows(const PredictedFamily& family, const std::string& doubt,
                                       const FamilyCoverage& coverage, const TableOptions& options,
                                       Table& table) {
  std::vector<PredictedRow> rows;
  const double most = family.most_ranks();
  const std::set<double> batches = batches_wanted(family, options, table);
  const auto is_measured = [&](double ranks, double batch) {
    return std::ranges::any_of(family.cells, [&](const StudyCell* cell) {
      return cell->ranks == ranks && cell->batch == batch;
    });
  };
  for (const double ranks : ranks_wanted(family, options))
    for (const double batch : batches) {
      if (is_measured(ranks, batch)) continue;  // it has a row, left out of the fit
      const bool beyond = ranks > most;
      PredictedRow& row = rows.emplace_back(
          family.row(family.fit, ranks, batch,
                     beyond ? PredictedKind::kExtrapolated : PredictedKind::kNotMeasured));
      if (doubt.empty()) {
        row.total_s = predict_interval(family.fit, family.left_out, ranks, batch);
        row.coverage = beyond ? coverage.more_ranks : coverage.left_out;
      } else {
        row.parts = {};
        row.remark = "not predicted: " + doubt;
      }
    }
  return rows;
}

/// Adds the rows of a family to `rows`, why it predicts nothing to `doubts`, and notes to the
/// table.
FamilyCoverage add_family(const PredictedFamily& family, const TableOptions& options,
                          std::vector<PredictedRow>& rows, std::vector<std::string>& doubts,
                          Table& table) {
  const auto left_out = left_out_rows(family);
  rows.insert(rows.end(), left_out.begin(), left_out.end());
  FamilyCoverage coverage;
  if (!left_out.empty()) coverage.left_out = left_out.front().coverage;
  const std::string doubt = prediction_doubt(family.fit, family.left_out);
  if (doubt.empty())
    coverage.more_ranks = coverage_on_more_ranks(family.study, family.cells);
  else
    doubts.push_back(fmt::format("{}: {}", family.name(), doubt));
  if (doubt.empty() || !options.predict_ranks.empty()) {
    const auto further = further_rows(family, doubt, coverage, options, table);
    rows.insert(rows.end(), further.begin(), further.end());
  }
  add_missing_note(family.fit, table);
  return coverage;
}

std::string score_note(const std::vector<PredictedRow>& rows) {
  std::vector<double> errors;
  for (const PredictedRow& row : rows)
    if (row.kind == PredictedKind::kLeftOut) errors.push_back(std::abs(row.error_percent()));
  const Statistics figures = statistics(errors);
  if (figures.count == 0)
    return "score: no cell could be predicted from the others of its family (at least "
           "two cells that determine the model are needed)";
  return fmt::format(
      "score on cells the model was not fitted to: median |error| {:.1f} %, largest {:.1f} %, "
      "{}, {} could not be predicted",
      figures.median, figures.maximum, count_text(figures.count, "cell"), figures.left_out);
}

std::string coverage_note(const FamilyCoverage& all) {
  return fmt::format(
      "low, high: as far from the prediction as the cell left out that was off most; on cells that "
      "neither model nor interval were made from they held {} left out, {} on the most ranks of a "
      "family as predicted from fewer (held: of the row's family; extrapolated rows by the latter; "
      "no interval where neither was measured)",
      all.left_out.text(), all.more_ranks.text());
}

std::vector<std::string> prediction_notes() {
  return {
      "T(n, b) = compute(b) + exposed(n, b) + wait(n, b) + other; \"left out\": predicted from the "
      "other cells of the family alone, their calibration included; ms of the median iteration",
      fmt::format("predicted are batches within the range measured, of families that predict each "
                  "cell left out to {:.0f} % and have no coefficient at its bound 0; "
                  "\"extrapolated\": to more ranks than were measured",
                  1e2 * kLargestLeftOutError),
      "predictions are for the link of the runs, one rank a core or GPU as measured, no congestion",
      "wait: median of the slowest of n ranks with independent delays",
      "family: runs of one model, mode and setting (threads, precision, buckets, ...): one law"};
}

}  // namespace

Table make_prediction_table(const RunStudy& runs, const TableOptions& options) {
  const auto& study = runs.cells();
  const auto columns = predicted_columns();
  Table table =
      columns.table("prediction", "Scaling model: predicted iteration time", prediction_notes());
  std::vector<PredictedRow> all;
  std::vector<std::string> doubts;
  FamilyCoverage coverage;
  double number = 0;
  for (const Cells& cells : families(study)) {
    std::vector<PredictedRow> rows;
    const FamilyCoverage one = add_family({study, cells, ++number, leave_out_each(study, cells),
                                           fit_family(cells, calibration_of(study))},
                                          options, rows, doubts, table);
    coverage.left_out.add(one.left_out);
    coverage.more_ranks.add(one.more_ranks);
    for (const PredictedRow& row : rows)
      table.add(columns.cells(row), family_sources(cells));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  table.notes.insert(table.notes.begin(), {score_note(all), coverage_note(coverage)});
  // What was asked for and is not there is said where a narrow text shows it.
  if (!doubts.empty())
    table.notes.insert(options.predict_ranks.empty() ? table.notes.end() : table.notes.begin(),
                       fmt::format("not predicted: {}", fmt::join(doubts, "; ")));
  return table;
}

namespace {

/// A law of a family: of one kind of collective, or of compute.
struct LawRow {
  const StudyCell* of_family;  ///< one of its cells
  std::string part;
  TwoTermFit law;
  std::size_t points;
  const FamilyFit* exchange = nullptr;  ///< of a collective: the fit it is a part of
  std::string fitted_to = {};
  int constant_decimals = 1;

  /// A cell that only collectives, or only compute, have.
  Cell of_collective(const Cell& cell) const { return exchange != nullptr ? cell : Cell(""); }
  Cell of_compute(const Cell& cell) const { return exchange == nullptr ? cell : Cell(""); }
};

TableColumns<LawRow> law_columns() {
  using Row = LawRow;
  const std::string all = "/calibration, /bucket, /time/compute";
  return {
      {"model", "model", kLabel, [](const Row& row) { return row.of_family->model; }},
      {"mode", "mode", kLabel, [](const Row& row) { return row.of_family->mode_text(); }},
      {"part", "part", kLabel, &Row::part},
      {"constant_us", "constant us",
       "collectives: alpha, the time of one step; compute: a of a + c*b", all,
       [](const Row& row) { return Cell::of(1e6 * row.law.first, row.constant_decimals); }},
      {"bandwidth_gb_per_s", "GB/s", "1/beta, bytes of one link in a second / 1e9",
       "/calibration, /bucket",
       [](const Row& row) {
         return row.of_collective(Cell::of(finite_or_none(1e-9 / row.law.second), 3));
       }},
      {"per_image_us", "us/image", "c of compute(b) = a + c*b", "/time/compute",
       [](const Row& row) { return row.of_compute(Cell::of(1e6 * row.law.second, 2)); }},
      {"residual_percent", "residual %", "root mean square of fitted/measured - 1", all,
       [](const Row& row) { return Cell::of(finite_or_none(1e2 * row.law.relative_rms()), 1); }},
      {"points", "n", "number of points fitted to", all,
       [](const Row& row) { return count_cell(row.points); }},
      {"slowdown", "slowdown",
       "sum of the shortest durations in training / sum of the fitted times, median over cells",
       "/bucket/start, /bucket/end",
       [](const Row& row) {
         return row.exchange ? Cell::of(row.exchange->slowdown, 2) : Cell("");
       }},
      {"contention_ns_per_byte", "contention ns/B",
       "(compute overlapped with the exchange - compute alone) / overlapped bytes, median over "
       "cells",
       "/time/compute, /bucket",
       [](const Row& row) {
         return row.exchange ? Cell::of(1e9 * row.exchange->contention_s_per_byte, 2) : Cell("");
       }},
      {"source", "fitted to", &Row::fitted_to}};
}

std::vector<LawRow> law_rows(const Cells& cells, const FamilyFit& fit) {
  std::vector<LawRow> rows;
  for (const auto& [kind, law] : fit.laws)
    rows.push_back(
        {cells.front(), std::string(collective_name(kind)), law.fit, law.fit.points, &fit,
         law.source + (law.fit.constrained ? ", a negative coefficient set to 0" : ""), 2});
  for (const bool several : {false, true}) {
    const ComputeLaw& law = compute_law(fit, several ? 2 : 1);
    if (law.cells == 0 || std::ranges::none_of(cells, [&](const StudyCell* cell) {
          return (cell->ranks > 1) == several;
        }))
      continue;
    rows.push_back({cells.front(), several ? "compute, several ranks" : "compute, one rank",
                    law.fit, law.cells, nullptr,
                    law.one_batch ? "one batch: optimizer constant, the rest proportional"
                                  : "median compute of the cells"});
  }
  return rows;
}

}  // namespace

Table make_model_fit_table(const RunStudy& runs, const TableOptions&) {
  const auto columns = law_columns();
  Table table = columns.table(
      "model-fit", "Scaling model: what it was fitted to",
      {"collectives: t(S, n) = alpha * steps(n) + S * share(n) / bandwidth; allreduce: "
       "steps 2(n-1), share 2(n-1)/n; gather, scatter, allgather: n-1 both; broadcast, "
       "reduce: log2 n both; coefficients not negative",
       "compute(b) = constant + b * (us/image); least squares on relative residuals; "
       "residual: root mean square of fitted/measured - 1; n: points fitted to",
       "slowdown: collectives in training over calibrated ones (1: fitted in training)",
       "contention: compute time lost per byte of overlapped communication (0: no run has a "
       "contender none in its job); compute is given without it"});
  for (const Cells& cells : families(runs.cells())) {
    const FamilyFit fit = fit_family(cells, calibration_of(runs.cells()));
    for (const LawRow& row : law_rows(cells, fit))
      table.add(columns.cells(row), family_sources(cells));
    add_missing_note(fit, table);
  }
  return table;
}

namespace {

/// The exchange of a cell, replayed with a change.
struct ReplayRow {
  const StudyCell& cell;
  std::string name;  ///< of the case
  WhatIf change = {};
  WhatIfResult result = {};
  double recorded_s = kNotMeasured;  ///< total of the exchange as recorded
  bool as_recorded = false;
  std::string remark = {};

  double step_s() const { return result.parts.total_s(); }
};

TableColumns<ReplayRow> replay_columns() {
  using Row = ReplayRow;
  const std::string from = "/bucket, /time, /calibration";
  return {{"mode", "mode", kLabel, [](const Row& row) { return row.cell.mode_text(); }},
          {"model", "model", kLabel, [](const Row& row) { return row.cell.model; }},
          {"ranks", "ranks", "number of ranks", "/topology/rank",
           [](const Row& row) { return Cell::count(row.change.ranks.value_or(row.cell.ranks)); }},
          {"batch_per_rank", "batch/rank", "option of the run, or predicted", "/config",
           [](const Row& row) {
             return Cell::count(positive(row.change.batch.value_or(row.cell.batch)));
           }},
          {"case", "case", kLabel, &Row::name, 0},
          {"messages", "messages", "number of messages replayed", from,
           [](const Row& row) { return count_cell(row.result.messages); }},
          {"payload_bytes", "payload", "sum of the messages of one rank", "/bucket/bytes",
           [](const Row& row) { return Cell::count(row.result.bytes); }},
          {"measured_ms", "measured ms", "median iteration of the slowest rank", "/time/iteration",
           [](const Row& row) {
             return model_ms_cell(row.as_recorded ? row.cell.medians.iteration_s : kNotMeasured);
           }},
          {"step_ms", "step ms", "compute + replayed exposed + wait + other", from,
           [](const Row& row) { return model_ms_cell(row.step_s()); }, 0},
          {"exposed_ms", "exposed ms", "max(0, end of the last message - end of backward)", from,
           [](const Row& row) { return model_ms_cell(row.result.parts.exposed_s); }},
          {"wait_ms", "wait ms", "compute * (0.5^(1/n) quantile of relative compute - 1)",
           "/time/compute", [](const Row& row) { return model_ms_cell(row.result.parts.wait_s); }},
          {"exposed_and_wait_percent", "exposed + wait %", "(exposed + wait)/step", from,
           [](const Row& row) {
             return Cell::of(finite_or_none(1e2 * row.result.exposed_share()), 1);
           }},
          {"change_percent", "change %", "step/step as recorded - 1", from,
           [](const Row& row) {
             return Cell::of(finite_or_none(1e2 * (row.step_s() / row.recorded_s - 1)), 1);
           },
           0},
          {"remark", "remark", &Row::remark, 0},
          {"run", "run", kLabel, [](const Row& row) { return row.cell.run().name; }}};
}

/// Why nothing but what was recorded of a cell is replayed, and why no cap is called the best;
/// empty where it is.
struct ReplayDoubt {
  std::string replay, best_cap;
};

/// Whether a change is a law of its own, for which that of the runs need not be known.
bool replaces_law(const WhatIf& change) {
  return change.latency_s && change.bandwidth_bytes_per_s;
}

/// `law`: the doubt in the law of the collectives.
ReplayDoubt doubt_of(const StudyCell& cell, const WhatIf& change, const std::string& law) {
  ReplayDoubt doubt;
  if (change.wire_bytes.value_or(4) != 4 && !mode_named(cell.mode).casts)
    doubt.replay = "--wire-dtype changes nothing that it sends";
  else if (!replaces_law(change))
    doubt.replay = law;
  if (cell.short_of_cores) doubt.best_cap = "the ranks had fewer cores than threads";
  return doubt;
}

/// Replays as recorded, with the change that was asked for, and with that and each cap.
std::vector<ReplayRow> replay_rows(const FamilyFit& fit, const StudyCell& cell,
                                   const WhatIf& change, const ReplayDoubt& doubt) {
  std::vector<ReplayRow> rows = {{cell, "as recorded"}};
  rows.front().as_recorded = true;
  const bool replayed = doubt.replay.empty();
  if (!change.text.empty()) rows.push_back({cell, change.text, change});
  if (cell.overlapped() && replayed) {
    const auto best = doubt.best_cap.empty() ? best_cap(fit, cell, change) : std::nullopt;
    for (const double cap : cap_ladder(gradient_bytes(fit, cell))) {
      ReplayRow& row =
          rows.emplace_back(ReplayRow{cell, "cap " + format_bytes(std::llround(cap)), change});
      row.change.bucket_cap_bytes = cap;
      if (cap == best) row.remark = "best cap";
    }
  }
  for (ReplayRow& row : rows) {
    row.result = what_if(fit, cell, row.change);
    row.recorded_s = rows.front().step_s();
    if (row.as_recorded || replayed) continue;
    row.result.parts = {};
    row.remark = "not replayed";
  }
  return rows;
}

/// The cells of a family on its largest number of ranks, if that is more than one.
Cells largest_exchanging(const Cells& family) {
  double most = 2;
  for (const StudyCell* cell : family)
    most = std::max(most, cell->ranks);
  Cells cells;
  for (const StudyCell* cell : family)
    if (cell->ranks == most && cell->exchanges()) cells.push_back(cell);
  return cells;
}

std::vector<std::string> what_if_notes() {
  return {
      "best cap: the largest whose step is at most 0.5 % longer than the shortest; where the law "
      "does not describe the collectives or a coefficient is at its bound 0, caps are not replayed",
      "replay of the recorded ready times on one channel: start = max(ready, end before), end = "
      "start + t(S, n); exposed = what ends after the backward pass; modes that do not overlap: "
      "all",
      "a new cap divides the recorded bytes again: those of a recorded bucket are taken to become "
      "ready evenly between the bucket before and its own; cuts may fall inside a parameter; the "
      "first bucket is as recorded, at most the cap; caps count fp32 bytes",
      "t(S, n) from table model-fit times its slowdown; bandwidth and latency given replace it "
      "(bandwidth: of a rank's link, each way; 8 Gbit/s are 1 GB/s); "
      "converting to bf16 or fp16 costs nothing here; first row: the error of the replay against "
      "the measurement",
      "no interval is shown: the runs hold no measurement of the changed exchange from which its "
      "coverage would follow",
      "the cells of each family on the most ranks; name single runs for others"};
}

/// What the laws of another network were fitted to, and how well.
void add_network_notes(const WhatIf& change, const std::vector<Curves>& network, Table& table) {
  std::set<std::int64_t> ranks;
  for (const Curves& curves : network)
    ranks.insert(curves.ranks);
  for (const auto& [kind, law] : change.network_laws) {
    const std::string name =
        fmt::format("network {}, {}", change.network->path.string(), collective_name(kind));
    add_once<std::string>(
        table.notes,
        !law.fit.usable()
            ? name + ": no curve of two sizes or more: n/a"
            : fmt::format("{}: {} of {} ranks, {}: latency {:.2f} us, {:.3f} GB/s, residual "
                          "{:.0f} % (root mean square), times the slowdown {:.2f} of training here",
                          name, law.source, fmt::join(ranks, ", "),
                          count_text(law.points.size(), "point"), 1e6 * law.fit.first,
                          1e-9 / law.fit.second, 1e2 * law.fit.relative_rms(),
                          change.network_slowdown));
  }
}

void add_replays(const RunStudy& runs, const Cells& cells, const WhatIf& wanted,
                 const TableColumns<ReplayRow>& columns, Table& table) {
  const Cells largest = largest_exchanging(cells);
  if (largest.empty()) return;
  const FamilyFit fit = fit_family(cells, calibration_of(runs.cells()));
  const WhatIf change = with_network_laws(fit, wanted);
  const std::string law = change.network ? law_doubt(change.network_laws) : law_doubt(fit);
  for (const StudyCell* cell : largest) {
    if (cell->profile.messages.empty()) {
      add_once<std::string>(
          table.notes, fmt::format("no replay for {}, {}: the model does not have its exchange, or "
                                   "no message was recorded",
                                   cell->model, cell->mode_text()));
      continue;
    }
    const ReplayDoubt doubt = doubt_of(*cell, change, law);
    std::string sources = family_sources({cell});
    if (change.network) sources += ", " + change.network->path.string();
    for (const ReplayRow& row : replay_rows(fit, *cell, change, doubt))
      table.add(columns.cells(row), sources);
    const bool replayed = doubt.replay.empty();
    const std::string& why = replayed ? doubt.best_cap : doubt.replay;
    if (!why.empty() && (cell->overlapped() || (!replayed && !change.text.empty())))
      add_once<std::string>(table.notes,
                            fmt::format("{} for {}, {}: {}", replayed ? "no best cap" : "no replay",
                                        cell->model, cell->mode, why));
  }
  add_missing_note(fit, table);
  add_network_notes(change, wanted.network_curves, table);
}

}  // namespace

Table make_what_if_table(const RunStudy& runs, const TableOptions& options) {
  const auto columns = replay_columns();
  Table table =
      columns.table("what-if", "What if: the recorded exchange replayed", what_if_notes());
  for (const Cells& family : families(runs.cells()))
    add_replays(runs, family, options.what_if, columns, table);
  if (table.rows.empty())
    table.notes.push_back("not shown: no run that exchanges on several ranks");
  return table;
}

}  // namespace gradsync::report
