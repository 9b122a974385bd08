#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/link_curve.h"
#include "analysis/model/scaling_model.h"
#include "record/row_figures.h"

namespace gradsync::report {

namespace {

constexpr std::array<const char*, 2> kCadencesTried = {"isolated", "back-to-back"};

TwoTermPoint point_of(CollectiveKind kind, double ranks, double bytes, double time_s) {
  const LawFactors factors = law_factors(kind, ranks);
  return {factors.steps, factors.share * bytes, time_s};
}

LawEntry fitted(std::vector<TwoTermPoint> points, std::string source, bool calibrated) {
  std::erase_if(points, [](const TwoTermPoint& point) { return !usable(point); });
  LawEntry entry{fit_two_terms(points), {}, std::move(source), calibrated};
  entry.points = std::move(points);
  return entry;
}

LawEntry from_calibration(CollectiveKind kind, const std::vector<CalibrationPoint>& calibration,
                          const std::string& transport, const std::string& cadence) {
  std::vector<TwoTermPoint> points;
  std::set<std::string> files;
  for (const CalibrationPoint& one : calibration) {
    if (one.kind != kind || one.transport != transport || one.cadence != cadence ||
        !(one.ranks > 1) || !(one.bytes > 0))
      continue;
    points.push_back(point_of(kind, one.ranks, one.bytes, one.time_s));
    if (!one.file.empty()) files.insert(one.file);
  }
  return fitted(std::move(points),
                fmt::format("calibration ({}, {}{}{})", transport, cadence,
                            files.empty() ? "" : "; ", fmt::join(files, "; ")),
                true);
}

/// Of the first cadence that determines it.
LawEntry from_transport(CollectiveKind kind, const std::vector<CalibrationPoint>& calibration,
                        const std::string& transport) {
  LawEntry entry;
  for (const char* cadence : kCadencesTried) {
    entry = from_calibration(kind, calibration, transport, cadence);
    if (entry.fit.usable()) break;
  }
  return entry;
}

/// Without the files that no cell of the family is held against.
std::vector<CalibrationPoint> calibration_for(const FamilyCells& cells,
                                              const std::vector<CalibrationPoint>& calibration) {
  std::vector<CalibrationPoint> kept;
  for (const CalibrationPoint& point : calibration)
    if (point.file.empty() || std::any_of(cells.begin(), cells.end(), [&](const CellFacts* cell) {
          return cell->calibration_file == point.file;
        }))
      kept.push_back(point);
  return kept;
}

/// That of the cells on several ranks, which are of one family; on one rank it has no effect.
const std::string& transport_of(const FamilyCells& cells) {
  const auto several = std::find_if(cells.begin(), cells.end(),
                                    [](const CellFacts* cell) { return cell->ranks > 1; });
  return (several == cells.end() ? cells.front() : *several)->transport;
}

/// Calibration of this kind that was passed over is of other transports: the source names them.
LawEntry from_training(CollectiveKind kind, const FamilyCells& cells,
                       const std::vector<CalibrationPoint>& calibration) {
  std::set<std::string> others;
  for (const CalibrationPoint& one : calibration)
    if (one.kind == kind && one.ranks > 1) others.insert(one.transport);
  for (const std::string& own :
       calibrated_as(transport_of(cells), kind, cells.front()->overlapped()))
    others.erase(own);
  std::vector<TwoTermPoint> points;
  for (const CellFacts* cell : cells)
    for (std::size_t i = 0; i < cell->profile.messages.size(); ++i) {
      const BucketMessage& message = cell->profile.messages[i];
      if (message.kind == kind && cell->ranks > 1)
        points.push_back(point_of(kind, cell->ranks, message.bytes, cell->profile.transfer_s[i]));
    }
  std::string source = "measured in training";
  if (!others.empty())
    source += fmt::format(" (over {}; the calibration is of {})", transport_of(cells),
                          fmt::join(others, ", "));
  return fitted(std::move(points), std::move(source), false);
}

}  // namespace

LawEntry law_of_curves(CollectiveKind kind, const FamilyCells& cells,
                       const std::vector<Curves>& curves, const std::string& file) {
  std::vector<CalibrationPoint> points;
  std::vector<std::string> transports =
      calibrated_as(transport_of(cells), kind, cells.front()->overlapped());
  for (const Curves& of_ranks : curves)
    for (const CalibrationRow& row : of_ranks.rows) {
      if (row.kind != kind || row.type != kFloatType || !usable(row)) continue;
      points.push_back({row.kind, row.transport, row.cadence, static_cast<double>(of_ranks.ranks),
                        static_cast<double>(row.bytes), row.median_s, kNoCell, file});
      if (std::find(transports.begin(), transports.end(), row.transport) == transports.end())
        transports.push_back(row.transport);
    }
  for (const std::string& name : transports)
    if (LawEntry entry = from_transport(kind, points, name); entry.fit.usable()) return entry;
  return {};
}

LawEntry choose_law(CollectiveKind kind, const FamilyCells& cells,
                    const std::vector<CalibrationPoint>& calibration) {
  const std::vector<CalibrationPoint> of_family = calibration_for(cells, calibration);
  for (const std::string& name :
       calibrated_as(transport_of(cells), kind, cells.front()->overlapped()))
    if (LawEntry entry = from_transport(kind, of_family, name); entry.fit.usable()) return entry;
  return from_training(kind, cells, of_family);
}

}  // namespace gradsync::report
