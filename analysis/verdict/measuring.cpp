// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/read/run_set.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

/// Says first of which runs the others conclude nothing; none where all had a core for each thread.
Clauses core_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const RunsShortOfCores& some : runs_short_of_cores(input.set.runs)) {
    const bool shared = some.word != "oversubscribed";
    VerdictClause clause = clause_of(
        shared ? "cores.shared" : "cores.oversubscribed",
        fmt::format(
            "{}: {}; the times of {} include waiting for a core, so nothing is "
            "concluded from them about scaling or bottlenecks",
            some.word, some.text,
            some.runs.size() == 1 ? "this run" : fmt::format("these {} runs", some.runs.size())),
        {}, shared ? "/usage/cpu_time, /time" : "/topology/affinity, /topology/threads",
        shared ? "CPU time of all threads of the rank, as the runs record it"
               : "threads and cores as the runs record them");
    for (const Run* run : some.runs)
      clause.files.push_back(run->path.string());
    clauses.push_back(std::move(clause));
  }
  return clauses;
}

namespace {

/// Runs of the same work that differ by less are not worth a sentence.
constexpr double kWide = 1.1;

}  // namespace

/// How far runs of the same work differ, where that is far.
Clauses spread_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [model, spread] : input.spreads) {
    if (!(spread.factor >= kWide)) continue;
    Cells cells;
    for (const StudyCell& cell : input.cells)
      if (cell.run().model == model) cells.push_back(&cell);
    clauses.push_back(clause_of(
        "spread.wide",
        spread_text(spread, model) + "; smaller differences between single starts are noise", cells,
        "/time/iteration", model + "; largest over smallest median iteration"));
  }
  return clauses;
}

namespace {

/// Wall time of an iteration in each round's window of a kind, which runs of earlier versions have:
/// of its slowest rank.
std::vector<double> window_times(const Run& run, std::string_view kind) {
  std::vector<double> times;
  for (const WindowRow& window : run.reader->windows()) {
    if (window.kind != kind) continue;
    double slowest = kNotMeasured;
    for (const RankWindow& rank : window.ranks)
      slowest = std::fmax(slowest, rank.iteration_s);
    times.push_back(slowest);
  }
  return times;
}

struct Measured {
  const StudyCell* cell;
  Estimate ratio;  ///< of an iteration with measuring to one without
  const char* datasets;
};

std::vector<Measured> measured_cells_of(const VerdictInput& input) {
  std::vector<Measured> all;
  for (const StudyCell& cell : input.cells) {
    std::vector<double> measured, unmeasured;
    for (const Run* run : cell.group.repeats) {
      for (const Experiment& job : input.experiments)
        for (const ContenderFigures& one : job.contenders)
          if (const auto* plain = job.find(one.name + ":stamps=off"); plain && one.run == run)
            if (const Estimate ratio = one.ratio_to(*plain); std::isfinite(ratio.value))
              all.push_back({&cell, ratio, "/time/iteration, /iteration/round"});
      const auto with = window_times(*run, "overlapped"),
                 without = window_times(*run, "overlapped-unmeasured");
      const auto rounds = static_cast<std::ptrdiff_t>(std::min(with.size(), without.size()));
      measured.insert(measured.end(), with.begin(), with.begin() + rounds);
      unmeasured.insert(unmeasured.end(), without.begin(), without.begin() + rounds);
    }
    const Estimate ratio = paired_ratio(measured, unmeasured);
    if (std::isfinite(ratio.value)) all.push_back({&cell, ratio, "/counterfactual"});
  }
  return all;
}

VerdictClause clause_for(const Measured& one) {
  const Estimate& ratio = one.ratio;
  const bool free = ratio.holds(1);
  return clause_of(
      free ? "measuring.free" : "measuring.changed",
      fmt::format(
          "measuring {}: an iteration takes {:.3f} times the iteration without it ({:.3f} to "
          "{:.3f})",
          free ? "cost nothing that shows" : "changed the iteration", ratio.value, ratio.low,
          ratio.high),
      {one.cell}, one.datasets, one.cell->name + fmt::format("; {} rounds", ratio.count));
}

/// One sentence on cells with too few rounds for an interval.
VerdictClause few_rounds(const std::vector<Measured>& cells) {
  Cells named;
  double least = kNotMeasured, most = kNotMeasured;
  std::size_t rounds = 0;
  for (const Measured& one : cells) {
    named.push_back(one.cell);
    least = std::fmin(least, one.ratio.value);
    most = std::fmax(most, one.ratio.value);
    rounds = std::max(rounds, one.ratio.count);
  }
  const std::string range = cells.size() == 1 ? fmt::format("{:.3f}", least)
                                              : fmt::format("{:.3f} to {:.3f}", least, most);
  return clause_of(
      "measuring.few",
      fmt::format("with measuring an iteration takes {} times the iteration without it in "
                  "{}; {} are too few to say whether measuring changes it",
                  range, count_text(cells.size(), "cell"), count_text(rounds, "round")),
      named, cells.front().datasets, "pseudomedian of the ratios within the rounds");
}

}  // namespace

Clauses measuring_clauses(const VerdictInput& input) {
  Clauses clauses;
  std::vector<Measured> few;
  for (const Measured& one : measured_cells_of(input))
    if (one.ratio.has_interval())
      clauses.push_back(clause_for(one));
    else
      few.push_back(one);
  if (!few.empty()) clauses.push_back(few_rounds(few));
  const bool all_traced = std::ranges::all_of(
      input.cells, [](const StudyCell& cell) { return is_traced(cell.run().reader->info()); });
  if (clauses.empty() && !all_traced)
    clauses.push_back(missing_clause(
        "measuring.missing",
        "instrumentation overhead was not measured: contenders ddp,ddp:stamps=off of "
        "gradsync-train --compare show it"));
  return clauses;
}

namespace {

/// Bits of NVML's clocks event reasons that cost speed: power, heat, hardware, sync boost.
constexpr std::int64_t kSlowdowns = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80;

/// What was sampled on one GPU of one run.
struct Samples {
  std::vector<double> clock_hz, power_w;
  double memory_bytes = kNotMeasured;
  std::size_t all = 0, with_reasons = 0, held_back = 0;

  void add(const DeviceSample& sample) {
    ++all;
    if (sample.sm_clock_hz > 0) clock_hz.push_back(sample.sm_clock_hz);
    if (sample.power_w > 0) power_w.push_back(sample.power_w);
    memory_bytes = std::fmax(memory_bytes, sample.memory_used_bytes);
    if (sample.throttle_reasons < 0) return;  // not known
    ++with_reasons;
    if ((sample.throttle_reasons & kSlowdowns) != 0) ++held_back;
  }

  std::string memory_text() const {
    return std::isnan(memory_bytes) ? "n/a" : fmt::format("{:.1f}", memory_bytes / (1 << 30));
  }
  /// 0 where no sample has reasons.
  double held_back_share() const {
    return with_reasons == 0 ? 0
                             : static_cast<double>(held_back) / static_cast<double>(with_reasons);
  }
  std::string held_back_text() const {
    return with_reasons == 0 ? "not known whether clocks were throttled"
                             : fmt::format("clocks throttled in {} of the samples",
                                           percent_text(held_back_share()));
  }
};

std::string number(const std::vector<double>& values, double unit, int decimals) {
  return values.empty() ? "n/a" : fmt::format("{:.{}f}", median(values) / unit, decimals);
}

std::string sentence_of(const std::string& run, std::int64_t rank, const Samples& gpu) {
  return fmt::format("the GPU of rank {} in {}: {} GHz, {} W (medians of {}), {} GiB at most; {}",
                     rank, run, number(gpu.clock_hz, 1e9, 2), number(gpu.power_w, 1, 0),
                     count_text(gpu.all, "sample"), gpu.memory_text(), gpu.held_back_text());
}

}  // namespace

/// None for runs without samples of their GPUs.
Clauses gpu_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const StudyCell& cell : input.cells)
    for (const Run* run : cell.group.repeats) {
      std::map<std::int64_t, Samples> ranks;
      for (const DeviceSample& sample : run->reader->device_samples())
        ranks[sample.rank].add(sample);
      if (ranks.empty()) continue;
      // The slowest GPU determines the time of all.
      const auto worst = std::ranges::max_element(ranks, [](auto& a, auto& b) {
        return a.second.held_back_share() < b.second.held_back_share();
      });
      clauses.push_back(clause_of("gpu.clocks", sentence_of(run->name, worst->first, worst->second),
                                  {&cell}, "/gpu", cell.name));
    }
  return clauses;
}

}  // namespace gradsync::report
