// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/experiments.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "base/parse.h"
#include "options/modes.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

std::string fact(const Run& run, std::string_view name) {
  for (const NamedText& one : run.reader->info().experiment)
    if (one.name == name) return one.value;
  return {};
}

/// Sums of the rows of one round, by rank.
struct Rounds {
  std::map<std::int64_t, std::vector<BlockTime>> sums;
  std::map<std::int64_t, std::size_t> iterations;
  std::set<std::int64_t> warmup;
};

Rounds rounds_of(const Run& run) {
  Rounds found;
  RunReader& reader = *run.reader;
  const IterationIndex& index = reader.index();
  const Matrix total = reader.time(Phase::kIteration), compute = reader.time(Phase::kCompute),
               exposed = reader.time(Phase::kExposed), wait = reader.time(Phase::kWait);
  for (std::size_t row = 0; row < reader.iterations(); ++row) {
    const std::int64_t round = index.round[row];
    if (round == kNoRound) continue;
    if (index.warmup[row]) found.warmup.insert(round);
    ++found.iterations[round];
    std::vector<BlockTime>& ranks = found.sums[round];
    ranks.resize(reader.ranks());
    for (std::size_t rank = 0; rank < reader.ranks(); ++rank)
      ranks[rank].add(total.at(row, rank), compute.at(row, rank), exposed.at(row, rank),
                      wait.at(row, rank));
  }
  return found;
}

/// Fills in the blocks of the rounds that all contenders have. Where a job was killed a block is
/// shorter than the others.
void pair_rounds(Experiment& experiment) {
  std::vector<Rounds> of;
  for (const ContenderFigures& contender : experiment.contenders)
    of.push_back(rounds_of(*contender.run));
  std::size_t block = 0;
  for (const auto& [round, iterations] : of.front().iterations)
    block = std::max(block, iterations);
  for (const auto& [round, iterations] : of.front().iterations) {
    const bool whole = std::all_of(of.begin(), of.end(), [&, number = round](const Rounds& one) {
      const auto found = one.iterations.find(number);
      return found != one.iterations.end() && found->second == block &&
             !one.warmup.contains(number);
    });
    if (!whole) continue;
    for (std::size_t i = 0; i < of.size(); ++i)
      experiment.contenders[i].blocks.push_back(last_to_come(of[i].sums.at(round), block));
  }
}

}  // namespace

Estimate ContenderFigures::ratio_to(const ContenderFigures& other, std::size_t comparisons) const {
  return paired_ratio(times_s(), other.times_s(), comparisons);
}

std::vector<double> ContenderFigures::times_s() const {
  std::vector<double> times_s;
  for (const BlockTime& block : blocks)
    times_s.push_back(block.time_s);
  return times_s;
}

BlockTime ContenderFigures::more_than(const ContenderFigures& other, double* other_s) const {
  std::vector<std::size_t> rounds(blocks.size());
  std::iota(rounds.begin(), rounds.end(), std::size_t{0});
  const auto difference_s = [&](std::size_t round) {
    return blocks[round].time_s - other.blocks[round].time_s;
  };
  std::sort(rounds.begin(), rounds.end(),
            [&](std::size_t a, std::size_t b) { return difference_s(a) < difference_s(b); });
  const std::size_t left_out = rounds.size() / 4;
  const auto middle = std::span(rounds).subspan(left_out, rounds.size() - 2 * left_out);
  const auto n = static_cast<double>(middle.size());
  BlockTime more;
  double sum_s = 0;
  for (const std::size_t round : middle) {
    more.time_s += difference_s(round) / n;
    sum_s += other.blocks[round].time_s;
    for (std::size_t part = 0; part < kCostParts.size(); ++part)
      more.parts_s[part] += (blocks[round].parts_s[part] - other.blocks[round].parts_s[part]) / n;
  }
  if (other_s) *other_s = sum_s / n;
  return more;
}

const ContenderFigures* Experiment::without_exchange() const {
  const auto found = std::find_if(
      contenders.begin(), contenders.end(),
      [](const ContenderFigures& one) { return !mode_named(one.run->mode).exchanges; });
  return found == contenders.end() ? nullptr : &*found;
}

Estimate Experiment::control() const {
  for (const ContenderFigures& one : contenders)
    if (one.control) return one.ratio_to(contenders.front());
  return {kNotMeasured, kNotMeasured, kNotMeasured, 0};
}

double Experiment::noise() const {
  const Estimate ratio = control();
  return std::max(ratio.high - 1, 1 - ratio.low);
}

std::string experiment_id(const Run& run) {
  return fact(run, "id");
}

Estimate contender_ratio(const Run& above, const Run& below, std::size_t comparisons) {
  Experiment pair{experiment_id(above), {{&above, {}, false, {}}, {&below, {}, false, {}}}};
  pair_rounds(pair);
  return pair.contenders[0].ratio_to(pair.contenders[1], comparisons);
}

bool has_experiments(const RunSet& set) {
  return std::any_of(set.runs.begin(), set.runs.end(),
                     [](const Run& run) { return !run.reader->info().experiment.empty(); });
}

std::vector<Experiment> experiments(const RunSet& set) {
  std::vector<Experiment> all;
  for (const Run& run : set.runs) {
    const std::string id = experiment_id(run);
    if (id.empty() ||
        std::any_of(all.begin(), all.end(), [&](const Experiment& one) { return one.id == id; }))
      continue;
    Experiment experiment{id, {}};
    const std::vector<std::string> names = split_list(fact(run, "contenders"), ',');
    for (const std::string& name : names)
      for (const Run& other : set.runs)
        if (experiment_id(other) == id && fact(other, "contender") == name)
          experiment.contenders.push_back({&other, name, name == names.front() + " (control)", {}});
    if (experiment.contenders.empty()) continue;
    pair_rounds(experiment);
    all.push_back(std::move(experiment));
  }
  return all;
}

}  // namespace gradsync::report
