#include "analysis/metrics/mode_figures.h"

#include <algorithm>
#include <cmath>

#include "analysis/metrics/columns.h"

namespace gradsync {

namespace {

double ratio(double sum, double of) {
  return of > 0 ? sum / of : Statistics::kNone;
}

double mean_loss(const Matrix& loss, std::size_t rank, const IterationIndex& index) {
  double sum = 0, samples = 0;
  for (std::size_t row = 0; row < loss.rows; ++row) {
    if (!std::isfinite(loss.at(row, rank))) continue;
    const auto weight = static_cast<double>(index.samples[row]);
    sum += weight * loss.at(row, rank);
    samples += weight;
  }
  return ratio(sum, samples);
}

// The last epoch may have been cut off before its end was recorded.
double counted_accuracy(const Matrix& correct, std::size_t rank, const IterationIndex& index) {
  double right = 0, samples = 0;
  for (std::size_t row = 0; row < correct.rows; ++row) {
    if (index.epoch[row] != index.epoch.back()) continue;
    right += correct.at(row, rank);
    samples += static_cast<double>(index.samples[row]) / static_cast<double>(correct.columns);
  }
  return ratio(right, samples);
}

double train_accuracy(const RunReader& run, const Matrix& correct, std::size_t rank) {
  const auto& index = run.index();
  const auto& epochs = run.epochs();
  const bool whole =
      !epochs.empty() && (index.epoch.empty() || epochs.back().epoch >= index.epoch.back());
  return whole ? epochs.back().ranks[rank].train_accuracy : counted_accuracy(correct, rank, index);
}

double test_accuracy(const RunReader& run, std::size_t rank) {
  for (auto epoch = run.epochs().rbegin(); epoch != run.epochs().rend(); ++epoch)
    if (std::isfinite(epoch->ranks[rank].test_accuracy)) return epoch->ranks[rank].test_accuracy;
  return Statistics::kNone;
}

double samples_per_s(const Matrix& time, std::size_t rank, const IterationIndex& index) {
  double samples = 0, time_s = 0;
  for (std::size_t row = 1; row < time.rows; ++row) {
    if (!std::isfinite(time.at(row, rank))) continue;
    samples += static_cast<double>(index.samples[row]);
    time_s += time.at(row, rank);
  }
  return ratio(samples, time_s);
}

std::vector<double> values_at(const Matrix& loss, std::size_t rank,
                              const std::vector<std::int64_t>& points) {
  std::vector<double> values;
  for (const std::int64_t point : points) {
    const auto row = static_cast<std::size_t>(point - 1);
    values.push_back(row < loss.rows ? loss.at(row, rank) : Statistics::kNone);
  }
  return values;
}

}  // namespace

std::vector<ModeFigures> mode_figures(RunReader& run, const SteadyRows& steady,
                                      const std::vector<std::int64_t>& points) {
  const IterationIndex& index = run.index();
  const Matrix time = run.time(Phase::kIteration);
  const Matrix loss = run.loss();
  const Matrix correct = run.correct();
  std::vector<ModeFigures> all(run.ranks());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ModeFigures& figures = all[rank];
    figures.loss_at = values_at(loss, rank, points);
    figures.mean_loss = mean_loss(loss, rank, index);
    figures.train_accuracy = train_accuracy(run, correct, rank);
    figures.test_accuracy = test_accuracy(run, rank);
    figures.mean_s = mean(rank_column(time, rank, [](std::size_t row) { return row > 0; }));
    figures.steady_s =
        statistics(rank_column(time, rank, [&](std::size_t row) { return steady.keeps(row); }));
    figures.samples_per_s = samples_per_s(time, rank, index);
  }
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

}  // namespace gradsync
