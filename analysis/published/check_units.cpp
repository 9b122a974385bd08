#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kUnitsCheck = "units";
constexpr double kThousand = 1000, kMuchWider = 1.5;
constexpr std::size_t kFewest = 3;  // cells in common that make a pattern

// --- one column ----------------------------------------------------------------------------------

void slip_of_column(const ColumnAudit& column, Audit& audit) {
  const Slip& slip = column.fit.choice.slip;
  if (!column.fit.reproduces || slip.text.empty()) return;
  report_column(audit, column.column, Severity::kContradicted, kUnitsCheck,
                fmt::format("{} in {} follows from the other numbers by {} only if it is {}",
                            column.column.quantity, column.column.unit,
                            column.fit.convention->formula, slip.text),
                {"", fmt::format("each value is divided by {:.6g}", slip.factor)});
}

// --- two reports ---------------------------------------------------------------------------------

using Key = std::tuple<std::string, std::int64_t, std::int64_t, Kind>;  // model, devices, batch
using Values = std::map<Key, const Row*>;

std::map<std::string, Values> values_by_report(const Study& study) {
  std::map<std::string, Values> reports;
  for (const Row& row : study.rows())
    if (row.usable() && row.what.derived && row.unit.dimension != Dimension::kRatio &&
        row.value > 0)
      reports[row.report].emplace(Key{row.model, row.devices, row.batch_per_device, row.what.kind},
                                  &row);
  return reports;
}

struct Common {
  double lowest = HUGE_VAL, highest = 0;  ///< of second / first
  Tally cells;
};

Common common_of(const Values& first, const Values& second, Kind kind) {
  Common common;
  for (const auto& [key, row] : first) {
    const auto other = second.find(key);
    if (std::get<Kind>(key) != kind || other == second.end()) continue;
    const double ratio = other->second->range().value / row->range().value;
    common.lowest = std::min(common.lowest, ratio);
    common.highest = std::max(common.highest, ratio);
    common.cells.add(
        fmt::format("{}: {} {} and {} {}", setting_text(row->devices, row->batch_per_device),
                    row->text, row->unit_text, other->second->text, other->second->unit_text),
        {row->line, other->second->line});
  }
  return common;
}

void compare_reports(const std::string& first, const std::string& second, const Common& common,
                     Audit& audit) {
  const bool thousand = common.cells.count() >= kFewest && common.lowest > kThousand / kMuchWider &&
                        common.highest < kThousand * kMuchWider;
  if (!thousand) return;
  report_tally(audit, "", Severity::kContradicted, kUnitsCheck,
               fmt::format("{} prints about 1,000 times what {} prints for the same model, devices "
                           "and batch ({:.0f} to {:.0f} times)",
                           second, first, common.lowest, common.highest),
               common.cells,
               {"The digits are alike and the units are a step apart: one of the two units is "
                "wrong.",
                "the links of the second are 1,000 times as fast"});
}

void across_reports(const Study& study, Audit& audit) {
  constexpr std::size_t kMostReports = 50;  // every pair is compared
  const auto reports = values_by_report(study);
  if (reports.size() > kMostReports) return;
  for (const auto& [first, first_values] : reports)
    for (const auto& [second, second_values] : reports)
      for (const Kind kind : {Kind::kBandwidth, Kind::kCommTime, Kind::kComputeTime})
        if (first != second)
          compare_reports(first, second, common_of(first_values, second_values, kind), audit);
}

}  // namespace

void check_units(const Study& study, Audit& audit) {
  for (std::size_t i = 0; i < audit.columns.size(); ++i)
    slip_of_column(audit.columns[i], audit);
  across_reports(study, audit);
}

}  // namespace gradsync::report::published
