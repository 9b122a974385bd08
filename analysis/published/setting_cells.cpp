#include "analysis/published/setting_cells.h"

#include <limits>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/page.h"

namespace gradsync::report::published {

namespace {

constexpr double kSettingCellsNone = std::numeric_limits<double>::quiet_NaN();

Cell setting_cells_count_or_none(double number) {
  return Cell::count(number > 0 ? number : kSettingCellsNone);
}

}  // namespace

std::vector<Column> setting_columns() {
  return {{"report", "report", true}, {"mode", "mode", true},           {"model", "model", true},
          {"ranks", "ranks"},         {"batch_per_rank", "batch/rank"}, {"batch_global", "global"}};
}

std::vector<Cell> setting_cells(const Row& row) {
  const auto ranks = static_cast<double>(row.devices);
  const auto batch = static_cast<double>(row.batch_per_device);
  const bool both = row.devices != kNotSaid && row.batch_per_device != kNotSaid;
  return {row.report,
          row.mode,
          row.model,
          setting_cells_count_or_none(ranks),
          setting_cells_count_or_none(batch),
          setting_cells_count_or_none(both ? ranks * batch : kSettingCellsNone)};
}

std::vector<const Row*> settings_of(const Study& study) {
  using Setting =
      std::tuple<std::string, std::string, std::string, std::int64_t, std::int64_t, std::string>;
  std::set<Setting> seen;
  std::vector<const Row*> firsts;
  for (const Row& row : study.rows())
    if (seen.insert({row.report, row.model, row.mode, row.devices, row.batch_per_device, row.extra})
            .second)
      firsts.push_back(&row);
  return firsts;
}

std::string source_text(const Study& study, const std::vector<std::size_t>& lines) {
  if (lines.empty()) return study.file().name;
  return fmt::format("{}, {}", study.file().name, lines_text(lines));
}

double iterations_of(const Row& row, const AuditOptions& options) {
  if (row.devices == kNotSaid || row.batch_per_device == kNotSaid) return kSettingCellsNone;
  const double global =
      static_cast<double>(row.devices) * static_cast<double>(row.batch_per_device);
  return epoch_iterations(options.images, global, LastBatch::kCounted);
}

EpochTimes epoch_times(const Study& study, const Row& row) {
  EpochTimes first;
  for (const TimeSource& source : study.time_sources(row.report)) {
    if (source.sum) continue;
    const EpochTimes times = {study.time_of(row, source), study.base_time_of(row, source, {}),
                              source};
    if (times.time.range.known() && times.base.range.known()) return times;
    if (times.time.range.known() && !first.time.range.known()) first = times;
  }
  return first;
}

}  // namespace gradsync::report::published
