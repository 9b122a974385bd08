#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

void volume_of_all_links(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (!column.fit.reproduces || !column.fit.convention->name.starts_with("total-volume")) return;
  Tally cells;
  for (const Row* row : column.column.rows) {
    if (!row->usable() || row->devices == kNotSaid || is_base_row(study, *row)) continue;
    cells.add(
        fmt::format("{}: {} {}, on one link {} {}",
                    setting_text(row->devices, row->batch_per_device), row->text, row->unit_text,
                    shown_like(*row, row->range().value / static_cast<double>(row->devices)),
                    row->unit_text),
        {row->line});
  }
  report_tally(audit, column.column.report, Severity::kContradicted, "all-links",
               "the volume of all links together is presented as bandwidth", cells,
               {fmt::format("{} grows with the number of devices and compares with no link.",
                            column.fit.convention->formula),
                "it is called total volume per second, or is divided by n"});
}

}  // namespace

void check_all_links(const Study& study, Audit& audit) {
  for (std::size_t i = 0; i < audit.columns.size(); ++i)
    if (audit.columns[i].column.kind == Kind::kBandwidth)
      volume_of_all_links(study, audit.columns[i], audit);
}

}  // namespace gradsync::report::published
