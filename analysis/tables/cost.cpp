// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/experiments.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "options/option_roles.h"

namespace gradsync::report {

namespace {

constexpr const char* kRoundTimes = "/time/iteration, /iteration/round";

/// A contender of an experiment. What its cost is made of is against the contender without an
/// exchange; NaN where there is none.
struct CostRow : CellRow {
  std::string contender;
  double iteration_s = kNotMeasured;
  Estimate ratio = {};
  std::size_t jobs = 0, rounds = 0;
  double cost_s = kNotMeasured, without_s = kNotMeasured;
  BlockTime more = {};
  double test_accuracy = kNotMeasured;  ///< 0 to 1
  Estimate pays_below = {};             ///< bytes per second
  std::vector<std::string> files = {};  ///< it comes from
};

TableColumns<CostRow> cost_columns() {
  using Row = CostRow;
  const auto time = [](double time_s, const Row& row) {
    return ms_cell(std::isnan(row.cost_s) ? kNotMeasured : time_s,
                   ms_decimals(1e3 * row.iteration_s));
  };
  const auto part = [&](CostPart which, const char* formula) {
    const auto at = static_cast<std::size_t>(which);
    const std::string name(kCostParts[at]);
    return RowColumn<Row>(name + "_ms", name + " ms", formula,
                          "/time/" + std::string(at < 3 ? name : "iteration"),
                          [=](const Row& row) { return time(row.more.parts_s[at], row); });
  };
  TableColumns<Row> columns = {{"contender", "contender", kLabel, &Row::contender, 0}};
  columns.add(cell_columns());
  return columns
      .add({{"iteration_ms", "iteration ms", "median over the rounds of the slowest rank",
             kRoundTimes,
             [](const Row& row) {
               return ms_cell(row.iteration_s, ms_decimals(1e3 * row.iteration_s));
             },
             0},
            {"ratio", "ratio", "pseudomedian of the ratios to the reference within the rounds",
             kRoundTimes, Ends{"{} end of the ratio's 95 % signed-rank interval"},
             [](const Row& row, End end) { return Cell::of(row.ratio.*end, 3); }, 0},
            {"jobs", "jobs", "jobs of the same settings", "/experiment/id",
             [](const Row& row) { return count_cell(row.jobs); }, 3},
            {"rounds", "rounds", "its rounds in all jobs, without warm-up", "/iteration/round",
             [](const Row& row) { return count_cell(row.rounds); }},
            {"cost_ms", "cost ms",
             "interquartile mean over the rounds of iteration - that without exchange", kRoundTimes,
             [=](const Row& row) { return time(row.cost_s, row); }, 0},
            {"cost_percent", "cost %", "cost / mean iteration without exchange in these rounds",
             kRoundTimes, [](const Row& row) { return percent_cell(row.cost_s / row.without_s); }},
            part(CostPart::kExposed, "exposed communication more than without exchange"),
            part(CostPart::kWait, "waiting for ranks more than without exchange"),
            part(CostPart::kCompute, "compute more than without exchange"),
            part(CostPart::kRest, "the rest of the cost"),
            {"test_percent", "test %", "at the last evaluation, mean over ranks and jobs",
             "/epoch/test_accuracy",
             [](const Row& row) { return percent_cell(row.test_accuracy, 1); }},
            {"pays_below_gbit_per_s", "pays below Gbit/s",
             "the rate of a link below which it is faster than each that steps by averaged "
             "gradients: 1 / (its time / its bytes - time saved / bytes saved), any where a link "
             "of any rate saves it less",
             "/time/iteration, /time/comm_busy, /time/exposed, /traffic",
             Ends{"{} end from that of the time saved"},
             [](const Row& row, End end) {
               return std::isinf(row.pays_below.*end) ? Cell("any")
                                                      : Cell::of(8e-9 * row.pays_below.*end, 2);
             },
             3}})
      .add(name_column());
}

std::vector<std::string> cost_notes(const std::vector<Experiment>& all) {
  std::vector<std::string> notes = {
      "contenders of one job (gradsync-train --compare), block by block in turn; an iteration "
      "counts as that of its slowest rank, its parts are of the rank that the others waited for",
      "ratio: to the first contender, within each round; [low, high]: 95 % interval of the "
      "signed-rank test",
      "cost: longer than the iteration without exchange = exposed + wait + compute + rest, means "
      "over the middle half of the rounds"};
  for (const Experiment& one : all) {
    for (const ContenderFigures& two : one.contenders)
      if (const std::string text = other_training_text(two.name); !text.empty())
        notes.push_back(two.name + text);
    if (!one.control().has_interval()) continue;
    notes.push_back(
        fmt::format("{}: the control is the same settings again; differences below "
                    "{:.1f} % are noise here",
                    one.contenders.front().run->name, 100 * one.noise()));
  }
  return notes;
}

}  // namespace

bool has_experiment(const RunSet& set, const TableOptions&) {
  return has_experiments(set);
}

namespace {

using Jobs = std::vector<const Experiment*>;

/// Experiments of the same contenders together.
std::vector<Jobs> repeated(const std::vector<Experiment>& all) {
  std::map<std::vector<std::vector<std::string>>, std::size_t> places;
  std::vector<Jobs> repeats;
  for (const Experiment& experiment : all) {
    std::vector<std::vector<std::string>> key;
    for (const ContenderFigures& one : experiment.contenders)
      if (one.against.empty()) key.push_back(cell_key(*one.run));
    const auto [known, is_new] = places.try_emplace(std::move(key), repeats.size());
    if (is_new) repeats.emplace_back();
    repeats[known->second].push_back(&experiment);
  }
  return repeats;
}

CostRow cost_row(const Jobs& jobs, const ContenderFigures& shown) {
  CostRow row{cell_row(*shown.run), shown.name};
  std::vector<double> times_s, logarithms;
  BlockTime sum;
  std::size_t costs = 0;
  double accuracy = 0;
  add_once(row.files, shown.run->path.string());
  for (const Experiment* job : jobs) {
    const ContenderFigures* one = job->find(shown.name);
    if (!one || one->blocks.empty()) continue;
    for (const ContenderFigures* of : {one, job->reference(), job->without_exchange()})
      if (of) add_once(row.files, of->run->path.string());
    ++row.jobs;
    row.rounds += one->blocks.size();
    accuracy += mean_test_accuracy(*one->run);
    for (const double time_s : one->times_s())
      times_s.push_back(time_s);
    if (const auto* reference = job->reference(); reference && one != reference) {
      const Estimate ratio = one->ratio_to(*reference);
      if (std::isfinite(ratio.value)) {
        row.ratio = ratio;
        logarithms.push_back(std::log(ratio.value));
      }
    }
    const ContenderFigures* without = job->without_exchange();
    if (!without || without == one) continue;
    double without_s = 0;
    const BlockTime more = one->more_than(*without, &without_s);
    if (std::isnan(more.time_s)) continue;
    sum.time_s += more.time_s;
    for (std::size_t part = 0; part < kCostParts.size(); ++part)
      sum.parts_s[part] += more.parts_s[part];
    row.without_s = (costs == 0 ? 0 : row.without_s) + without_s;
    ++costs;
  }
  const ContenderFigures* changed = jobs.front()->find(shown.name);
  if (changed && jobs.size() == 1 && !mode_named(shown.run->mode).changes.empty())
    row.pays_below = jobs.front()->pays_below(*changed);
  row.iteration_s = median(times_s);
  row.test_accuracy = row.jobs > 0 ? accuracy / static_cast<double>(row.jobs) : kNotMeasured;
  if (logarithms.size() > 1) row.ratio = exponential(mean_estimate(logarithms));
  if (costs == 0) return row;
  const auto n = static_cast<double>(costs);
  row.cost_s = sum.time_s / n;
  row.without_s /= n;
  for (std::size_t part = 0; part < kCostParts.size(); ++part)
    row.more.parts_s[part] = sum.parts_s[part] / n;
  return row;
}

}  // namespace

Table make_cost_table(const RunStudy& runs, const TableOptions&) {
  const std::vector<Experiment>& all = runs.experiments();
  const auto columns = cost_columns();
  Table table =
      columns.table("cost", "What synchronization costs, measured in one job", cost_notes(all));
  for (const Jobs& jobs : repeated(all)) {
    if (jobs.size() > 1)
      table.notes.push_back(
          fmt::format("{}: {} of the same settings; ratio: mean of the jobs' logarithms with "
                      "Student's interval, cost: mean over the jobs",
                      jobs.front()->contenders.front().run->name, count_text(jobs.size(), "job")));
    const auto add = [&](const CostRow& row) {
      table.add(columns.cells(row), fmt::format("{}", fmt::join(row.files, ", ")));
    };
    for (const ContenderFigures& one : jobs.front()->contenders)
      add(cost_row(jobs, one));
    for (const Experiment* job : jobs)
      for (const ContenderFigures& one : job->contenders)
        if (!jobs.front()->find(one.name)) add(cost_row({job}, one));
  }
  return table;
}

namespace {

/// A setting that joined an experiment because of its prediction.
struct AdviceRow : CellRow {
  std::string contender, against;
  Estimate predicted = {}, measured = {};
};

TableColumns<AdviceRow> advice_columns() {
  using Row = AdviceRow;
  TableColumns<Row> columns = {{"contender", "contender", kLabel, &Row::contender, 0},
                               {"against", "against", kLabel, &Row::against, 0}};
  columns.add(cell_columns());
  return columns
      .add({{"predicted", "predicted", "predicted iteration over that of `against`", "/experiment",
             Ends{"{} of the prediction's range", "least", "most"},
             [](const Row& row, End end) { return Cell::of(row.predicted.*end, 3); }, 0},
            {"measured", "measured", "pseudomedian of the ratios within the rounds", kRoundTimes,
             Ends{"{} end of the ratio's 95 % signed-rank interval"},
             [](const Row& row, End end) { return Cell::of(row.measured.*end, 3); }, 0},
            {"error_percent", "error %", "predicted / measured - 1", kRoundTimes,
             [](const Row& row) {
               return percent_cell(row.predicted.value / row.measured.value - 1);
             },
             0},
            {"rounds", "rounds", "rounds that both have, without warm-up", "/iteration/round",
             [](const Row& row) { return count_cell(row.measured.count); }}})
      .add(name_column());
}

}  // namespace

bool has_advice(const RunSet& set, const TableOptions&) {
  return std::ranges::any_of(set.runs, [](const Run& run) {
    return std::ranges::any_of(run.reader->info().experiment, [](const NamedText& fact) {
      return fact.name == "against" && !fact.value.empty();
    });
  });
}

Table make_advice_table(const RunStudy& runs, const TableOptions&) {
  const auto columns = advice_columns();
  Table table = columns.table(
      "advice", "Settings that were predicted to be faster, tried",
      {"ratios to the contender that was the fastest when they joined (gradsync-train "
       "--advise); predicted: [low, high] allow for the error of the model"});
  std::vector<double> errors;
  for (const Experiment& experiment : runs.experiments())
    for (const ContenderFigures& one : experiment.contenders) {
      const ContenderFigures* against = experiment.find(one.against);
      if (one.against.empty() || !against) continue;
      AdviceRow row{cell_row(*one.run), one.name, one.against, one.predicted,
                    one.ratio_to(*against)};
      if (const std::string text = other_training_text(one.name); !text.empty())
        table.notes.push_back(one.name + text);
      const double error = std::abs(row.predicted.value / row.measured.value - 1);
      if (std::isfinite(error)) errors.push_back(error);
      table.add(columns.cells(row), one.run->path.string() + ", " + against->run->path.string());
    }
  if (!errors.empty())
    table.notes.push_back(
        fmt::format("mean error of the predictions: {:.1f} %", 1e2 * mean(errors)));
  return table;
}

}  // namespace gradsync::report
