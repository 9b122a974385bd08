// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/rank_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "base/ranges.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// A weighted mean of each rank; NaN for a rank without weight.
struct RankSums {
  std::vector<double> sum, weight;

  explicit RankSums(std::size_t ranks) : sum(ranks, 0), weight(ranks, 0) {}
  void add(std::size_t rank, double value, double of) {
    if (!std::isfinite(value)) return;
    sum[rank] += value;
    weight[rank] += of;
  }
  double ratio(std::size_t rank) const {
    return weight[rank] > 0 ? sum[rank] / weight[rank] : Statistics::kNone;
  }
};

void fill_in_losses(RunReader& run, const std::vector<std::int64_t>& points,
                    std::vector<ModeFigures>& all) {
  RankSums losses_by_samples(all.size());
  for (ModeFigures& figures : all)
    figures.loss_at.assign(points.size(), Statistics::kNone);
  for_each_row(run, loss_blocks(), [&](std::size_t row, std::span<const double> loss) {
    const auto samples = static_cast<double>(run.index().samples[row]);
    for (std::size_t rank = 0; rank < loss.size(); ++rank)
      losses_by_samples.add(rank, samples * loss[rank], samples);
    const auto point = std::ranges::find(points, static_cast<std::int64_t>(row + 1));
    if (point == points.end()) return;
    for (std::size_t rank = 0; rank < loss.size(); ++rank)
      all[rank].loss_at[static_cast<std::size_t>(point - points.begin())] = loss[rank];
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    all[rank].mean_loss = losses_by_samples.ratio(rank);
}

/// The last epoch may have been cut off before its end was recorded.
bool last_epoch_is_whole(const RunReader& run) {
  const auto& index = run.index();
  const auto& epochs = run.epochs();
  return !epochs.empty() && (index.epoch.empty() || epochs.back().epoch >= index.epoch.back());
}

void count_correct(RunReader& run, std::vector<ModeFigures>& all) {
  const auto& index = run.index();
  RankSums right(all.size());
  const MatrixBlocks counts = [](RunReader& reader, std::size_t first, std::size_t count) {
    return reader.correct(first, count);
  };
  for_each_row(run, counts, [&](std::size_t row, std::span<const double> correct) {
    if (index.epoch[row] != index.epoch.back()) return;
    const double own = static_cast<double>(index.samples[row]) / static_cast<double>(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      right.add(rank, correct[rank], own);
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    all[rank].train_accuracy = right.ratio(rank);
}

/// Value of one rank at the last evaluation that has one.
double last_evaluated(const RunReader& run, std::size_t rank, double RankEpoch::*member) {
  for (auto epoch = run.epochs().rbegin(); epoch != run.epochs().rend(); ++epoch)
    if (std::isfinite(epoch->ranks[rank].*member)) return epoch->ranks[rank].*member;
  return Statistics::kNone;
}

}  // namespace

double mean_test_accuracy(const Run& run) {
  double sum = 0;
  for (std::int32_t rank = 0; rank < run.ranks; ++rank)
    sum += last_evaluated(*run.reader, static_cast<std::size_t>(rank), &RankEpoch::test_accuracy);
  return sum / static_cast<double>(run.ranks);
}

namespace {

void fill_in_accuracy(RunReader& run, std::vector<ModeFigures>& all) {
  if (last_epoch_is_whole(run))
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].train_accuracy = run.epochs().back().ranks[rank].train_accuracy;
  else if (!is_traced(run.info()))  // a trace holds no outputs
    count_correct(run, all);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].test_accuracy = last_evaluated(run, rank, &RankEpoch::test_accuracy);
    all[rank].test_loss = last_evaluated(run, rank, &RankEpoch::test_loss);
  }
}

/// Without the first iteration.
void fill_in_speed(RunReader& run, std::vector<ModeFigures>& all) {
  RankSums time_s(all.size()), samples(all.size());
  for_each_row(run, phase_blocks(Phase::kIteration),
               [&](std::size_t row, std::span<const double> time) {
                 if (row == 0) return;
                 const double global = positive(static_cast<double>(run.index().samples[row]));
                 for (std::size_t rank = 0; rank < time.size(); ++rank) {
                   time_s.add(rank, time[rank], 1);
                   if (std::isfinite(time[rank])) samples.add(rank, global, time[rank]);
                 }
               });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].mean_s = time_s.ratio(rank);
    all[rank].samples_per_s = samples.ratio(rank);
  }
}

/// Sorted once in place: what takes a copy and sorts it again then has little to do.
void sort_finite(std::span<double> values) {
  const auto end = std::partition(values.begin(), values.end(),
                                  [](double value) { return std::isfinite(value); });
  std::sort(values.begin(), end);
}

void fill_in_steady(RunReader& run, const SteadyRows& steady, std::vector<ModeFigures>& all) {
  Matrix times = steady_by_rank(run, steady, phase_blocks(Phase::kIteration));
  const std::size_t period = exchange_period(run);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto row = std::span(times.values).subspan(rank * times.columns, times.columns);
    // A median of single iterations would leave an exchange in every eighth out.
    all[rank].median_s = median_estimate(period_means(row, period));
    sort_finite(row);
    all[rank].steady_s = statistics(row);
  }
}

}  // namespace

std::vector<ModeFigures> mode_figures(RunReader& run, const SteadyRows& steady,
                                      const std::vector<std::int64_t>& points) {
  std::vector<ModeFigures> all(run.ranks());
  fill_in_losses(run, points, all);
  fill_in_accuracy(run, all);
  fill_in_speed(run, all);
  fill_in_steady(run, steady, all);
  return all;
}

std::vector<std::int64_t> loss_points(std::int64_t longest, std::int64_t every, std::int64_t most) {
  if (every == 0) return {};
  const std::int64_t all = longest / every;
  const std::int64_t step = every * std::max<std::int64_t>(1, (all + most - 1) / most);
  std::vector<std::int64_t> points;
  for (std::int64_t point = step; point <= longest; point += step)
    points.push_back(point);
  return points;
}

SplitFigures::SplitFigures() {
  mean_s.fill(Statistics::kNone);
}

double SplitFigures::percent(Phase phase) const {
  return 1e2 * (*this)[phase] / (*this)[Phase::kIteration];
}

double SplitFigures::parts_s() const {
  return (*this)[Phase::kCompute] + (*this)[Phase::kExposed] + wait_part_s + (*this)[Phase::kOther];
}

double SplitFigures::gap() const {
  return std::abs(parts_s() / (*this)[Phase::kIteration] - 1);
}

bool waits_apart(const RunReader& run) {
  return run.info().schema >= 2;
}

std::string waiting_text(const RunSet& set) {
  std::size_t several = 0, within = 0;
  for (const Run& run : set.runs) {
    if (run.ranks < 2) continue;
    ++several;
    within += waits_apart(*run.reader) ? 0 : 1;
  }
  if (within == 0) return {};
  return fmt::format(
      "communication, hidden and exposed, contains waiting for late ranks{}, and wait is n/a",
      within == several
          ? ": these are runs of schema 1"
          : fmt::format(" in {} of {}, which are of schema 1", within, count_text(several, "run")));
}

std::vector<SplitFigures> split_figures(RunReader& run, const SteadyRows& steady) {
  std::vector<SplitFigures> all(run.ranks());
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const auto means = rank_means(run, steady, phase_blocks(static_cast<Phase>(phase)));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].mean_s[phase] = means[rank];
  }
  for (SplitFigures& figures : all) {
    figures.iterations = steady.kept();
    figures.waits_apart = waits_apart(run);
    figures.wait_part_s = figures.waits_apart ? figures[Phase::kWait] : 0;
  }
  return all;
}

SplitFigures mean_of(const std::vector<SplitFigures>& ranks) {
  SplitFigures result;
  const auto mean_of_ranks = [&](auto value) { return mean(each(ranks, value)); };
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    result.mean_s[phase] =
        mean_of_ranks([phase](const SplitFigures& rank) { return rank.mean_s[phase]; });
  result.wait_part_s = mean_of_ranks([](const SplitFigures& rank) { return rank.wait_part_s; });
  result.waits_apart = std::ranges::all_of(ranks, &SplitFigures::waits_apart);
  if (!ranks.empty()) result.iterations = ranks.front().iterations;
  return result;
}

SplitFigures mean_over_repeats(const RunGroup& group) {
  std::vector<SplitFigures> runs;
  std::size_t iterations = 0;
  for (const Run* run : group.repeats) {
    runs.push_back(mean_of(split_figures(*run->reader, run->steady)));
    iterations += runs.back().iterations;
  }
  SplitFigures all = mean_of(runs);
  all.iterations = iterations;
  return all;
}

int base_preference(const Comparison& one) {
  return (mode_named(one.base->first().mode).exchanges ? 2 : 0) +
         (one.scaling == Scaling::kStrong ? 0 : 1);
}

GroupSplits::GroupSplits(const std::vector<RunGroup>& groups) : comparisons_(comparisons(groups)) {}

const SplitFigures& GroupSplits::measured(const RunGroup& group) {
  const auto known = measured_.find(&group);
  if (known != measured_.end()) return known->second;
  return measured_.emplace(&group, mean_over_repeats(group)).first->second;
}

const Comparison* GroupSplits::base_of(const RunGroup& group) const {
  const Comparison* best = nullptr;
  for (const Comparison& one : comparisons_)
    if (one.group == &group && one.base->first().ranks == 1 &&
        (best == nullptr || base_preference(one) < base_preference(*best)))
      best = &one;
  return best;
}

DerivedSplit GroupSplits::derived(const RunGroup& group) {
  DerivedSplit split;
  split.sources = sources_of(group);
  const Comparison* one = base_of(group);
  if (one == nullptr) return split;
  const auto images = static_cast<double>(group.first().batch_global);
  const auto base_images = static_cast<double>(one->base->first().batch_global);
  const auto ranks = static_cast<double>(group.first().ranks);
  const double time_s = measured(group)[Phase::kIteration];
  split.base = fmt::format("{} ({})", base_text(*one->base), scaling_name(one->scaling));
  split.one_rank_s = measured(*one->base)[Phase::kIteration] * images / base_images;
  split.compute_s = derived_compute(split.one_rank_s, ranks);
  split.communication_s = derived_communication(split.one_rank_s, time_s, ranks);
  split.unfairness = unfairness(*one);
  if (!one->itself()) split.sources += ", " + sources_of(*one->base);
  return split;
}

namespace {

/// Adds up collectives, one at a time.
class ArrivalCounter {
 public:
  explicit ArrivalCounter(const RunReader& run) : caused_s_(run.ranks()), last_(run.ranks()) {
    // The clock of rank 0 is the one that the others are read by.
    for (const RankPlace& place : run.info().topology)
      uncertainty_s_.push_back(std::isfinite(place.clock_uncertainty_s) ? place.clock_uncertainty_s
                               : uncertainty_s_.empty()                 ? 0
                                                        : std::numeric_limits<double>::infinity());
  }

  /// `begin_s` and `start_s` have one value a rank.
  void add(std::span<const double> begin_s, std::span<const double> start_s) {
    std::size_t count = 0, latest = 0, second = 0;
    double sum_s = 0, base_s = 0;
    const auto arrival = [&](std::size_t rank) { return begin_s[rank] + start_s[rank]; };
    for (std::size_t rank = 0; rank < begin_s.size(); ++rank) {
      if (!std::isfinite(arrival(rank))) continue;
      if (count == 0) base_s = arrival(rank);
      sum_s += arrival(rank) - base_s;  // small numbers: the sum keeps its digits
      if (count == 0 || arrival(rank) > arrival(latest)) {
        second = count == 0 ? rank : latest;
        latest = rank;
      } else if (second == latest || arrival(rank) > arrival(second)) {
        second = rank;
      }
      ++count;
    }
    if (count < 2) return;
    ++collectives_;
    ++last_[latest];
    caused_s_[latest] += static_cast<double>(count) * (arrival(latest) - base_s) - sum_s;
    const double lead_s = arrival(latest) - arrival(second);
    if (lead_s < uncertainty_s_[latest] + uncertainty_s_[second]) ++undecided_;
  }

  void fill_in(Stragglers& result) const {
    result.collectives = collectives_;
    if (collectives_ == 0 || result.iterations == 0) return;
    const auto all = static_cast<double>(collectives_);
    double caused_by_all_s = 0;
    for (const double one_s : caused_s_)
      caused_by_all_s += one_s;
    result.undecided_percent = 1e2 * static_cast<double>(undecided_) / all;
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
      StragglerFigures& figures = result.ranks[rank];
      figures.caused_s = caused_s_[rank] / static_cast<double>(result.iterations);
      figures.caused_percent =
          caused_by_all_s > 0 ? 1e2 * caused_s_[rank] / caused_by_all_s : kNotMeasured;
      figures.last_percent = 1e2 * static_cast<double>(last_[rank]) / all;
    }
  }

 private:
  std::vector<double> caused_s_, uncertainty_s_;
  std::vector<std::size_t> last_;
  std::size_t collectives_ = 0, undecided_ = 0;
};

}  // namespace

Stragglers stragglers(RunReader& run, const SteadyRows& steady) {
  const std::size_t ranks = run.ranks();
  const std::size_t buckets = run.index().buckets;
  Stragglers result;
  result.ranks.resize(ranks);
  result.iterations = steady.kept();
  const auto waits = rank_means(run, steady, phase_blocks(Phase::kWait));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.ranks[rank].suffered_s = waits[rank];
  if (buckets == 0 || ranks < 2) return result;
  ArrivalCounter counter(run);
  for_each_block(run, ranks * (buckets + 1), [&](std::size_t first, std::size_t count) {
    const Matrix begin = run.begin(first, count);
    const Matrix start = run.bucket_starts(first, count);
    for (std::size_t row = 0; row < count; ++row)
      for (std::size_t b = 0; steady.keeps(first + row) && b < buckets; ++b)
        counter.add(begin.row(row), start.row(row).subspan(b * ranks, ranks));
  });
  counter.fill_in(result);
  return result;
}

}  // namespace gradsync::report
