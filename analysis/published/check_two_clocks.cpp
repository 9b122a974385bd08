#include <optional>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kTwoClocksCheck = "two-clocks";

/// Of training without loading, or of the whole run; nothing for a time that is not called either.
std::optional<Kind> clock_of(const TimeSource& source) {
  const Kind kind = quantity_of(source.quantity).kind;
  if (source.sum || (kind != Kind::kTrainingTime && kind != Kind::kRunningTime)) return {};
  return kind;
}

bool needs_both(const ColumnAudit& column) {
  return column.fit.reproduces && column.fit.convention->needs_input(Input::kTime) &&
         column.fit.convention->needs_input(Input::kBaseTime);
}

std::string by_clock(const Study& study, const Row& row, const ColumnAudit& column,
                     const TimeSource& source, const AuditOptions& options) {
  Choice choice = column.fit.choice;
  choice.time = choice.base = source;
  const Range range = expect(study, row, *column.fit.convention, choice, options).range;
  return range.known() ? fmt::format("{} by {}", shown_like(row, range.value), source.quantity)
                       : "unknown by " + source.quantity;
}

void two_in_one_ratio(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (!needs_both(column)) return;
  const Choice& choice = column.fit.choice;
  const auto time = clock_of(choice.time), base = clock_of(choice.base);
  if (!time || !base || *time == *base) return;
  Tally cells;
  for (const Row* row : column.column.rows)
    if (row->usable() && !is_base_row(study, *row))
      cells.add(fmt::format("{}: {} {}; {}, {}", setting_text(row->devices, row->batch_per_device),
                            row->quantity, row->text,
                            by_clock(study, *row, column, choice.time, audit.options),
                            by_clock(study, *row, column, choice.base, audit.options)),
                {row->line});
  report_tally(audit, column.column.report, Severity::kContradicted, kTwoClocksCheck,
               fmt::format("two clocks in one ratio: T(n) is {}, T(1) is {}", choice.time.quantity,
                           choice.base.quantity),
               cells,
               {"Loading is in one of the two and not in the other.",
                "both times are of one clock, as the cell names"});
}

/// The clock by which columns of some kinds were made; the last such column counts.
const ColumnAudit* column_by_clock(const Audit& audit, const std::string& report, bool of_parts) {
  const ColumnAudit* found = nullptr;
  for (const ColumnAudit& column : audit.columns) {
    const bool parts = may_be_measured(column.column.kind);
    const bool ratio = column.column.kind == Kind::kSpeedup;
    if (column.column.report == report && (of_parts ? parts : ratio) && needs_both(column) &&
        clock_of(column.fit.choice.time))
      found = &column;
  }
  return found;
}

void two_in_one_report(const std::string& report, Audit& audit) {
  const ColumnAudit* speedup = column_by_clock(audit, report, false);
  const ColumnAudit* split = column_by_clock(audit, report, true);
  if (!speedup || !split) return;
  const TimeSource &one = speedup->fit.choice.time, &other = split->fit.choice.time;
  if (clock_of(one) == clock_of(other)) return;
  report_column(
      audit, split->column, Severity::kDoubtful, kTwoClocksCheck,
      fmt::format("speedup by {}, {} by {}", one.quantity, split->column.quantity, other.quantity),
      {"The parts do not explain the speedup beside them.", "both columns are by one clock"});
}

}  // namespace

void check_two_clocks(const Study& study, Audit& audit) {
  for (std::size_t i = 0; i < audit.columns.size(); ++i)
    two_in_one_ratio(study, audit.columns[i], audit);
  for (const std::string& report : study.reports())
    two_in_one_report(report, audit);
}

}  // namespace gradsync::report::published
