#include "record/counterfactual.h"

#include <algorithm>
#include <cmath>

#include "stats/statistics.h"

namespace gradsync {

double window_figure(const std::vector<WindowRow>& windows, std::string_view kind,
                     double RankWindow::*figure) {
  std::vector<double> rounds;
  for (const WindowRow& window : windows) {
    if (window.kind != kind) continue;
    std::vector<double> ranks;
    for (const RankWindow& rank : window.ranks)
      ranks.push_back(rank.*figure);
    rounds.push_back(mean(ranks));
  }
  return median(rounds);
}

Counterfactual counterfactual(const std::vector<WindowRow>& windows) {
  const auto wall_s = [&](std::size_t kind) {
    return window_figure(windows, kWindowKinds[kind], &RankWindow::iteration_s);
  };
  Counterfactual result;
  result.compute_only_s = wall_s(0);
  result.communication_s = wall_s(1);
  result.serial_s = wall_s(2);
  result.overlapped_s = wall_s(3);
  result.unmeasured_s = wall_s(4);
  result.compute_alone_s = window_figure(windows, kWindowKinds[0], &RankWindow::compute_s);
  result.compute_beside_s = window_figure(windows, kWindowKinds[3], &RankWindow::compute_s);
  for (const WindowRow& window : windows) {
    result.rounds = std::max(result.rounds, window.round + 1);
    result.iterations =
        result.iterations == 0 ? window.iterations : std::min(result.iterations, window.iterations);
  }
  return result;
}

double Counterfactual::overlap_gain() const {
  return (serial_s - overlapped_s) / positive(communication_s);
}

double Counterfactual::osu_overlap_percent() const {
  const double hidden = 1 - (overlapped_s - compute_only_s) / positive(communication_s);
  return std::isnan(hidden) ? kNotMeasured : std::max(0.0, 100 * hidden);
}

double Counterfactual::contention_s() const {
  return std::isnan(serial_s) ? kNotMeasured : compute_beside_s - compute_alone_s;
}

double Counterfactual::measuring_percent() const {
  return 100 * (overlapped_s - unmeasured_s) / positive(unmeasured_s);
}

}  // namespace gradsync
