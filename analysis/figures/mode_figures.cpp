#include "analysis/figures/mode_figures.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "analysis/read/columns.h"

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

MatrixBlocks losses() {
  return
      [](RunReader& run, std::size_t first, std::size_t count) { return run.loss(first, count); };
}

MatrixBlocks correct_counts() {
  return [](RunReader& run, std::size_t first, std::size_t count) {
    return run.correct(first, count);
  };
}

void fill_in_losses(RunReader& run, const std::vector<std::int64_t>& points,
                    std::vector<ModeFigures>& all) {
  RankSums losses_by_samples(all.size());
  for (ModeFigures& figures : all)
    figures.loss_at.assign(points.size(), Statistics::kNone);
  for_each_row(run, losses(), [&](std::size_t row, std::span<const double> loss) {
    const auto samples = static_cast<double>(run.index().samples[row]);
    for (std::size_t rank = 0; rank < loss.size(); ++rank)
      losses_by_samples.add(rank, samples * loss[rank], samples);
    const auto point = std::find(points.begin(), points.end(), static_cast<std::int64_t>(row + 1));
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
  for_each_row(run, correct_counts(), [&](std::size_t row, std::span<const double> correct) {
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

void fill_in_accuracy(RunReader& run, std::vector<ModeFigures>& all) {
  if (last_epoch_is_whole(run))
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].train_accuracy = run.epochs().back().ranks[rank].train_accuracy;
  else
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
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    sort_finite(std::span(times.values).subspan(rank * times.columns, times.columns));
    all[rank].steady_s = statistics(times.row(rank));
    all[rank].median_s = median_estimate(times.row(rank));
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

}  // namespace gradsync::report
