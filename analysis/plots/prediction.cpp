// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/model/doubt.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostBatches = 6;  // of a panel; more cannot be told apart
constexpr std::array<const char*, kMostBatches> kBatchColors = {"#0072b2", "#d55e00", "#009e73",
                                                                "#cc79a7", "#e69f00", "#56b4e9"};

struct Predicted {
  std::string mode, model;
  double ranks, batch, family;
  double measured_ms, predicted_ms, low_ms, high_ms;
};

/// Found by the names of their columns; none of a table that lacks one.
std::vector<Predicted> rows_of(const Table& table) {
  const auto column = [&](const char* name) {
    const auto found = std::ranges::find(table.columns, name, &Column::name);
    return static_cast<std::size_t>(found - table.columns.begin());
  };
  const std::size_t mode = column("mode"), model = column("model");
  const std::array numbers = {column("ranks"),       column("batch_per_rank"), column("family"),
                              column("measured_ms"), column("predicted_ms"),   column("low_ms"),
                              column("high_ms")};
  if (std::max({mode, model, std::ranges::max(numbers)}) == table.columns.size()) return {};
  std::vector<Predicted> rows;
  for (const std::vector<Cell>& row : table.rows) {
    const auto number = [&](std::size_t nth) { return row[numbers[nth]].number; };
    if (std::isfinite(number(3)) || std::isfinite(number(4)))
      rows.push_back({row[mode].text, row[model].text, number(0), number(1), number(2), number(3),
                      number(4), number(5), number(6)});
  }
  return rows;
}

/// Batches that were measured: a prediction is worth seeing beside them.
std::vector<double> measured_batches(const std::vector<Predicted>& rows) {
  std::set<double> batches;
  for (const Predicted& row : rows)
    if (std::isfinite(row.measured_ms)) batches.insert(row.batch);
  return {batches.begin(), batches.end()};
}

void add_batch(ChartPanel& panel, const std::vector<Predicted>& rows, double batch,
               const char* color) {
  const std::string text = fmt::format("batch {:.0f} per rank", batch);
  ChartSeries predicted{"predicted, " + text, Mark::kLinePoints, color, 2, 1.5, {}, {}};
  ChartSeries measured{"measured, " + text, Mark::kMarkers, color, 1, 2, {}, {}};
  for (const Predicted& row : rows) {
    if (row.batch != batch) continue;
    predicted.points.push_back({row.ranks, row.predicted_ms, row.low_ms, row.high_ms});
    if (std::isfinite(row.measured_ms)) measured.points.push_back({row.ranks, row.measured_ms});
  }
  predicted.points = by_place(std::move(predicted.points));
  measured.points = by_place(std::move(measured.points));
  predicted.keys = measured.keys = {{"batch_per_rank", fmt::format("{:.0f}", batch)},
                                    {"mode", rows.front().mode},
                                    {"model", rows.front().model}};
  panel.series.push_back(std::move(predicted));
  panel.series.push_back(std::move(measured));
}

/// Families of one model and mode differ in a setting: there the number of the family is named.
std::string title_of(const Predicted& one, const std::vector<std::vector<Predicted>>& panels) {
  const auto alike = std::ranges::count_if(panels, [&](const auto& rows) {
    return rows.front().model == one.model && rows.front().mode == one.mode;
  });
  return fmt::format("{}, {}", one.model, one.mode) +
         (alike > 1 ? fmt::format(", family {:.0f}", one.family) : std::string());
}

std::optional<ChartPanel> panel_of(const std::vector<Predicted>& rows, std::string title) {
  const auto batches = measured_batches(rows);
  if (batches.empty()) return std::nullopt;
  ChartPanel panel{std::move(title), "", {}, {}, kNotMeasured, false};
  if (batches.size() > kMostBatches)
    panel.subtitle = fmt::format("{} more batch sizes not shown", batches.size() - kMostBatches);
  for (std::size_t i = 0; i < std::min(batches.size(), kMostBatches); ++i)
    add_batch(panel, rows, batches[i], kBatchColors[i]);
  std::set<double> ranks;
  for (const Predicted& row : rows)
    ranks.insert(row.ranks);
  panel.x_ticks = number_ticks(ranks);
  return panel;
}

}  // namespace

std::optional<Chart> prediction_chart(const Table& table) {
  std::vector<std::vector<Predicted>> panels;
  IntervalCoverage coverage;
  for (const Predicted& row : rows_of(table)) {
    if (std::isfinite(row.measured_ms))
      coverage.add({row.predicted_ms, row.low_ms, row.high_ms, 0}, row.measured_ms);
    const auto same = [&](const std::vector<Predicted>& panel) {
      return panel.front().family == row.family;
    };
    const auto known = std::ranges::find_if(panels, same);
    (known == panels.end() ? panels.emplace_back() : *known).push_back(row);
  }
  Chart chart{
      "Scaling model: predicted iteration time",
      {"Dashed: the model; next to a measured cell it was fitted to the others only. Rings: "
       "measured median iteration of the slowest rank.",
       (coverage.cells == 0
            ? std::string()
            : fmt::format("Bars: as far as the cell left out that was off most; they held {} "
                          "measured cells. ",
                          coverage.text())) +
           "Both axes logarithmic."},
      {"ranks", "ranks", "", 2, false},
      {"iteration_ms", "iteration time (ms)", "ms", 10, false},
      {}};
  for (const auto& rows : panels)
    if (auto panel = panel_of(rows, title_of(rows.front(), panels)))
      chart.panels.push_back(std::move(*panel));
  if (chart.panels.empty()) return std::nullopt;
  return chart;
}

std::optional<Chart> make_prediction_plot(const PlotInput& input) {
  // With --columns the table that was made may lack some that the plot needs.
  for (const Table& table : input.made)
    if (table.name == "prediction")
      if (auto chart = prediction_chart(table)) return chart;
  return prediction_chart(make_prediction_table(input.runs, input.options));
}

}  // namespace gradsync::report
