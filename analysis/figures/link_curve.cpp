#include "analysis/figures/link_curve.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "options/transport_choice.h"
#include "record/row_figures.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

using Rows = std::vector<const CalibrationRow*>;

Rows rows_of(const Run& run, CollectiveKind kind) {
  Rows rows;
  for (const CalibrationRow& row : run.calibration())
    if (row.kind == kind && row.type == kFloatType && usable(row)) rows.push_back(&row);
  return rows;
}

/// Keeps the rows whose `field` is the first of `wanted` that any row has, else of the first row.
void keep(Rows& rows, std::string CalibrationRow::*field, const std::vector<std::string>& wanted) {
  if (rows.empty()) return;
  std::string chosen = rows.front()->*field;
  for (const std::string& one : wanted)
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const auto* row) { return row->*field == one; })) {
      chosen = one;
      break;
    }
  std::erase_if(rows, [&](const auto* row) { return row->*field != chosen; });
}

}  // namespace

std::vector<std::string> calibrated_as(const std::string& transport, CollectiveKind kind,
                                       bool beside_compute) {
  const std::vector<std::string> over_mpi = beside_compute
                                                ? std::vector<std::string>{"mpi-ring", "mpi"}
                                                : std::vector<std::string>{"mpi", "mpi-ring"};
  const TransportTraits* traits = find_transport(transport);
  if (traits && !traits->host_memory) return {transport};
  if (transport == "mpi" || kind != CollectiveKind::kAllReduce) return over_mpi;
  return {transport};
}

double LinkCurve::time_at(double size) const {
  const auto above = std::lower_bound(bytes.begin(), bytes.end(), size);
  if (above == bytes.end()) return kNotMeasured;
  const auto i = static_cast<std::size_t>(above - bytes.begin());
  if (bytes[i] == size) return time_s[i];
  if (i == 0) return kNotMeasured;
  const double part = std::log(size / bytes[i - 1]) / std::log(bytes[i] / bytes[i - 1]);
  return time_s[i - 1] * std::pow(time_s[i] / time_s[i - 1], part);
}

double LinkCurve::plateau_busbw(double ranks) const {
  std::vector<double> bandwidths;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bandwidths.push_back(busbw(kind, bytes[i], ranks, time_s[i]));
  return plateau(bytes, bandwidths);
}

AlphaBeta LinkCurve::fit() const {
  return fit_alpha_beta(bytes, time_s);
}

namespace {

/// What a run holds itself comes first.
const Run* calibrated_run(const RunGroup& group, CollectiveKind kind) {
  for (const bool own : {true, false})
    for (const Run* run : group.repeats)
      if ((run->calibration_file == nullptr) == own && !rows_of(*run, kind).empty()) return run;
  return nullptr;
}

}  // namespace

LinkCurve link_curve(const RunGroup& group, CollectiveKind kind) {
  LinkCurve curve;
  curve.kind = kind;
  const Run* run = calibrated_run(group, kind);
  if (!run) return curve;
  Rows rows = rows_of(*run, kind);
  auto own = calibrated_as(option_value(*run, "transport"), kind, false);
  own.emplace_back("mpi");
  keep(rows, &CalibrationRow::transport, own);
  keep(rows, &CalibrationRow::cadence, {"isolated"});
  if (run->calibration_file) curve.file = run->calibration_file->name();
  curve.transport = rows.front()->transport;
  curve.cadence = rows.front()->cadence;
  std::map<std::int64_t, double> by_size;
  for (const CalibrationRow* row : rows)
    by_size.emplace(row->bytes, row->median_s);
  for (const auto& [size, time] : by_size) {
    curve.bytes.push_back(static_cast<double>(size));
    curve.time_s.push_back(time);
  }
  return curve;
}

}  // namespace gradsync::report
