#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

bool is_of_exchange(Kind kind) {
  return kind == Kind::kCommTime || kind == Kind::kBandwidth || kind == Kind::kCommShare;
}

void one_device_check_report(const Study& study, const std::string& report, Audit& audit) {
  Tally cells;
  for (const Row* row : study.rows_of(report))
    if (row->usable() && row->devices == 1 && is_of_exchange(row->what.kind) && row->value > 0)
      cells.add(fmt::format("{}: {} {} {}", setting_text(1, row->batch_per_device), row->quantity,
                            row->text, row->unit_text),
                {row->line});
  report_tally(audit, report, Severity::kContradicted, "one-device", "communication on one device",
               cells,
               {"Nothing crosses a link: what was timed is the call itself, a copy or waiting.",
                "the row is of several devices, or the time is called overhead"});
}

}  // namespace

void check_one_device(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    one_device_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
