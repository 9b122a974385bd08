#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

// Of the same global batch where it is published, else of the same batch per device.
Found one_device_time(const Study& study, const Row& row) {
  const TimeSource source = {row.table, row.quantity, false};
  const Found same_work = study.base_time_of(row, source, {true, false});
  return same_work.range.known() ? same_work : study.base_time_of(row, source, {});
}

void slower_check_report(const Study& study, const std::string& report, Audit& audit) {
  constexpr double kSlowerBy = 1.05;  // epochs of one setting vary by a few per cent
  Tally cells;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable() || !is_epoch_time(row->what.kind) || is_base_row(study, *row)) continue;
    if (row->devices == kNotSaid) continue;
    const Found base = one_device_time(study, *row);
    if (base.devices != 1 || !(row->range().low > kSlowerBy * base.range.high)) continue;
    cells.add(fmt::format("{}: {} of {:.4g} s against {:.4g} s",
                          setting_text(row->devices, row->batch_per_device), row->quantity,
                          row->range().value, base.range.value),
              {row->line, base.lines.front()});
  }
  report_tally(audit, report, Severity::kDoubtful, "slower", "more devices are slower than one",
               cells,
               {"Communication costs more than the devices save, so its bandwidth and a speedup at "
                "this batch describe a loss.",
                "the batch is too small for this link, and the report states it"});
}

}  // namespace

void check_slower(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    slower_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
