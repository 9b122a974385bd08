// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/experiments.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "analysis/read/columns.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "options/option_roles.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

std::string fact(const Run& run, std::string_view name) {
  for (const NamedText& one : run.reader->info().experiment)
    if (one.name == name) return one.value;
  return {};
}

/// The whole blocks of a run, by round, per iteration of the reference's size. One in which a job
/// was killed, or warmed up, is shorter.
std::map<std::int64_t, BlockTime> blocks_of(const Run& run, double worth) {
  std::map<std::int64_t, std::vector<BlockTime>> sums;
  std::map<std::int64_t, std::size_t> iterations;
  RunReader& reader = *run.reader;
  const IterationIndex& index = reader.index();
  const bool scheduled = !batch_schedule(run).empty();
  for_each_block(reader, 4 * reader.ranks(), [&](std::size_t first, std::size_t count) {
    const Matrix total = reader.time(Phase::kIteration, first, count),
                 compute = reader.time(Phase::kCompute, first, count),
                 exposed = reader.time(Phase::kExposed, first, count),
                 wait = reader.time(Phase::kWait, first, count);
    for (std::size_t row = 0; row < count; ++row) {
      const std::int64_t round = index.round[first + row];
      if (round == kNoRound || index.warmup[first + row]) continue;
      ++iterations[round];
      std::vector<BlockTime>& ranks = sums[round];
      ranks.resize(reader.ranks());
      const double here =
          scheduled ? worth
                    : worth_of_iteration(worth, index.samples[first + row], run.batch_global);
      for (std::size_t rank = 0; rank < reader.ranks(); ++rank)
        ranks[rank].add(total.at(row, rank) / here, compute.at(row, rank) / here,
                        exposed.at(row, rank) / here, wait.at(row, rank) / here);
    }
  });
  std::size_t whole = 0;
  for (const auto& [round, count] : iterations)
    whole = std::max(whole, count);
  std::map<std::int64_t, BlockTime> blocks;
  for (const auto& [round, ranks] : sums)
    if (iterations[round] == whole) blocks[round] = last_to_come(ranks, whole);
  return blocks;
}

std::vector<std::pair<BlockTime, BlockTime>> paired(const ContenderFigures& one,
                                                    const ContenderFigures& other) {
  return paired_blocks(one.blocks, other.blocks,
                       std::lcm(one.rounds_per_exchange, other.rounds_per_exchange));
}

std::int64_t number_of(const Run& run, std::string_view option, std::int64_t otherwise) {
  return parsed_or<std::int64_t>(parse_integer, option_value(run, option), otherwise);
}

ContenderFigures figures_of(const Run& run) {
  ContenderFigures figures{&run, fact(run, "contender")};
  figures.control = is_control(run);
  figures.worth = worth_of(run);
  figures.blocks = blocks_of(run, figures.worth);
  figures.rounds_per_exchange =
      rounds_per_exchange(static_cast<std::int64_t>(exchange_period(*run.reader)),
                          number_of(run, "block", 1), number_of(run, "block-warmup", 0));
  figures.against = fact(run, "against");
  if (figures.against.empty()) return figures;
  const auto number = [&](const char* name) {
    return std::strtod(fact(run, name).c_str(), nullptr);
  };
  figures.predicted = {number("predicted"), number("predicted_low"), number("predicted_high"), 0};
  return figures;
}

}  // namespace

Estimate ContenderFigures::ratio_to(const ContenderFigures& other, std::size_t comparisons) const {
  std::vector<double> above_s, below_s;
  for (const auto& [above, below] : paired(*this, other)) {
    above_s.push_back(above.time_s);
    below_s.push_back(below.time_s);
  }
  return paired_ratio(above_s, below_s, comparisons);
}

Estimate ContenderFigures::pays_below(const ContenderFigures& other) const {
  std::vector<double> shorter_s;
  for (const auto& [mine, its] : paired(*this, other))
    shorter_s.push_back(its.time_s - mine.time_s);
  const double saved_bytes = other.sent.link_bytes - sent.link_bytes;
  Estimate result = paired_estimate(shorter_s);
  for (const auto end : {&Estimate::value, &Estimate::low, &Estimate::high}) {
    const double saved_s = result.*end / saved_bytes;
    const double inverse = other.sent.moving_s / other.sent.link_bytes - saved_s;
    const bool always = inverse <= 0 || saved_s >= other.sent.exposed_s / other.sent.link_bytes;
    result.*end = !(saved_bytes > 0) || std::isnan(inverse) ? kNotMeasured
                  : always ? std::numeric_limits<double>::infinity()
                           : 1 / inverse;
  }
  return result;
}

std::vector<double> ContenderFigures::times_s() const {
  std::vector<double> times_s;
  for (const auto& [block, same] : paired(*this, *this))
    times_s.push_back(block.time_s);
  return times_s;
}

BlockTime ContenderFigures::more_than(const ContenderFigures& other, double* other_s) const {
  auto pairs = paired(*this, other);
  const auto difference_s = [](const auto& pair) { return pair.first.time_s - pair.second.time_s; };
  std::ranges::sort(
      pairs, [&](const auto& a, const auto& b) { return difference_s(a) < difference_s(b); });
  const std::size_t left_out = pairs.size() / 4;
  const auto middle = std::span(pairs).subspan(left_out, pairs.size() - 2 * left_out);
  const auto n = static_cast<double>(middle.size());
  BlockTime more;
  if (pairs.empty()) {
    more.time_s = kNotMeasured;
    more.parts_s.fill(kNotMeasured);
  }
  double sum_s = 0;
  for (const auto& pair : middle) {
    more.time_s += difference_s(pair) / n;
    sum_s += pair.second.time_s;
    for (std::size_t part = 0; part < kCostParts.size(); ++part)
      more.parts_s[part] += (pair.first.parts_s[part] - pair.second.parts_s[part]) / n;
  }
  if (other_s) *other_s = sum_s / n;
  return more;
}

const ContenderFigures* Experiment::find(const std::string& name) const {
  const auto found = std::ranges::find(contenders, name, &ContenderFigures::name);
  return found == contenders.end() ? nullptr : &*found;
}

const ContenderFigures* Experiment::reference() const {
  const std::string named = fact(*contenders.front().run, "contenders");
  return find(named.substr(0, named.find(',')));
}

const ContenderFigures* Experiment::without_exchange() const {
  const auto found = std::ranges::find_if(
      contenders, [](const ContenderFigures& one) { return !mode_named(one.run->mode).exchanges; });
  return found == contenders.end() ? nullptr : &*found;
}

namespace {

/// Whether a contender was measured that exchanges, and changes the training or does not.
bool competes(const ContenderFigures& one, bool changes_training) {
  const Mode& mode = mode_named(one.run->mode);
  return !one.control && mode.exchanges && is_recorded(*one.run) && !one.times_s().empty() &&
         mode.changes.empty() != changes_training;
}

}  // namespace

const ContenderFigures* Experiment::fastest_exact() const {
  const ContenderFigures* best = nullptr;
  for (const ContenderFigures& one : contenders)
    if (competes(one, /*changes_training=*/false) &&
        (!best || median(one.times_s()) < median(best->times_s())))
      best = &one;
  return best;
}

std::vector<const ContenderFigures*> Experiment::changing_training() const {
  std::vector<const ContenderFigures*> all;
  for (const ContenderFigures& one : contenders)
    if (competes(one, /*changes_training=*/true)) all.push_back(&one);
  return all;
}

Estimate Experiment::pays_below(const ContenderFigures& changed) const {
  Estimate least{kNotMeasured, kNotMeasured, kNotMeasured, 0};
  for (const ContenderFigures& one : contenders) {
    if (!competes(one, /*changes_training=*/false)) continue;
    const Estimate below = changed.pays_below(one);
    if (std::isnan(below.value)) return below;
    const bool first = std::isnan(least.value);
    // An end that one of them lacks is not known.
    for (const auto end : {&Estimate::value, &Estimate::low, &Estimate::high})
      least.*end = first                    ? below.*end
                   : std::isnan(least.*end) ? kNotMeasured
                                            : std::min(below.*end, least.*end);
  }
  return least;
}

Estimate Experiment::control() const {
  for (const ContenderFigures& one : contenders)
    if (one.control && reference()) return one.ratio_to(*reference());
  return {kNotMeasured, kNotMeasured, kNotMeasured, 0};
}

double Experiment::noise() const {
  const Estimate ratio = control();
  return std::max(ratio.high - 1, 1 - ratio.low);
}

std::string experiment_id(const Run& run) {
  return fact(run, "id");
}

double worth_of(const Run& run) {
  const std::string worth = fact(run, "worth");
  return worth.empty() ? 1 : positive(parsed_or(parse_number, worth, kNotMeasured));
}

bool is_control(const Run& run) {
  const std::string contenders = fact(run, "contenders");
  return fact(run, "contender") ==
         fmt::format("{}{}", contenders.substr(0, contenders.find(',')), kControlEnding);
}

Estimate contender_ratio(const Run& above, const Run& below, std::size_t comparisons) {
  return figures_of(above).ratio_to(figures_of(below), comparisons);
}

bool has_experiments(const RunSet& set) {
  return std::ranges::any_of(set.runs,
                             [](const Run& run) { return !run.reader->info().experiment.empty(); });
}

std::vector<Experiment> experiments(const RunSet& set) {
  std::vector<Experiment> all;
  for (const Run& run : set.runs) {
    const std::string id = experiment_id(run);
    if (id.empty() || contains(all, id, &Experiment::id)) continue;
    Experiment experiment{id, {}};
    const auto join = [&experiment](const Run& one) {
      ContenderFigures& joined = experiment.contenders.emplace_back(figures_of(one));
      joined.sent = sent_figures(one);
      for (const auto member : {&SentFigures::link_bytes, &SentFigures::moving_s,
                                &SentFigures::exposed_s, &SentFigures::convert_s})
        joined.sent.*member /= joined.worth;
    };
    const std::vector<std::string> names = split_list(fact(run, "contenders"), ',');
    for (const std::string& name : names)
      for (const Run& other : set.runs)
        if (experiment_id(other) == id && fact(other, "contender") == name) join(other);
    for (const Run& other : set.runs)
      if (experiment_id(other) == id && !experiment.find(fact(other, "contender"))) join(other);
    if (experiment.contenders.empty()) continue;
    all.push_back(std::move(experiment));
  }
  return all;
}

}  // namespace gradsync::report
