#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "analysis/published/audit_page.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"

namespace gradsync::report::published {

namespace {

constexpr double kAuditTablesNone = std::numeric_limits<double>::quiet_NaN();

Cell audit_tables_count_or_none(std::int64_t number) {
  return Cell::count(number == kNotSaid ? kAuditTablesNone : static_cast<double>(number));
}

Cell audit_tables_count(std::size_t number) {
  return Cell::count(static_cast<double>(number));
}

int audit_tables_decimals_of(const Row& row) {
  return std::clamp(row.decimals, 0, 15);
}

std::vector<Column> value_columns() {
  return {{"line", "line"},
          {"report", "report", true},
          {"table", "table", true},
          {"model", "model", true},
          {"mode", "mode", true},
          {"devices", "devices"},
          {"batch_per_device", "batch/device"},
          {"quantity", "quantity", true},
          {"value", "published"},
          {"unit", "unit", true},
          {"expected", "expected", false, "by the convention of the column", "published numbers"},
          {"verdict", "verdict", true}};
}

std::vector<Cell> value_row(const Row& row, const Verdict& verdict) {
  const double expected = verdict.expected.value / row.unit.factor;
  return {audit_tables_count(row.line),
          row.report,
          row.table,
          row.model,
          row.mode,
          audit_tables_count_or_none(row.devices),
          audit_tables_count_or_none(row.batch_per_device),
          row.quantity,
          Cell::of(row.value, audit_tables_decimals_of(row)),
          row.unit_text,
          Cell::of(expected, std::max(2, audit_tables_decimals_of(row))),
          verdict.text};
}

std::string convention_of(const Fit& fit) {
  if (!fit.convention) return "none known";
  return fit.reproduces ? std::string(fit.convention->name) : "none";
}

std::string nearest_of(const Fit& fit) {
  if (!fit.convention || fit.reproduces || fit.recomputed == 0) return "";
  return std::string(fit.convention->name);
}

}  // namespace

Table make_published_values_table(const Study& study, const Audit& audit) {
  Table table{"published-values",
              "Derived numbers of " + study.file().name + ", recomputed",
              {"line: in the file; expected: in the unit beside it, by the convention that gives "
               "the column, or the nearest (table columns)",
               "agrees: within half a unit of the last digit of the number and of those it is made "
               "from"},
              value_columns(),
              {}};
  for (std::size_t i = 0; i < study.rows().size(); ++i) {
    const Verdict& verdict = audit.verdicts[i];
    if (verdict.judgment == Judgment::kPrimary) continue;
    std::vector<std::size_t> lines = verdict.lines;
    lines.push_back(study.rows()[i].line);
    table.add(value_row(study.rows()[i], verdict), source_text(study, lines));
  }
  return table;
}

Table make_published_columns_table(const Study& study, const Audit& audit) {
  Table table{"published-columns",
              "Conventions of " + study.file().name,
              {"convention: the one that gives the column; combinations: of convention, constants "
               "and sources that were tried"},
              {{"report", "report", true},
               {"table", "table", true},
               {"model", "model", true},
               {"quantity", "quantity", true},
               {"unit", "unit", true},
               {"values", "n"},
               {"convention", "convention", true},
               {"nearest", "nearest", true},
               {"formula", "formula", true},
               {"agree", "agree"},
               {"differ", "differ"},
               {"cannot", "cannot"},
               {"lowest_ratio", "printed/expected, least"},
               {"highest_ratio", "most"},
               {"combinations", "combinations"}},
              {}};
  for (const ColumnAudit& column : audit.columns) {
    const Fit& fit = column.fit;
    const DerivedColumn& one = column.column;
    const bool ratios = fit.recomputed > 0;
    table.add(
        {one.report, one.table, one.model, one.quantity, one.unit,
         audit_tables_count(one.rows.size()), convention_of(fit), nearest_of(fit),
         fit.convention ? std::string(fit.convention->formula) + constants_text(fit) : "",
         audit_tables_count(column.agree), audit_tables_count(column.differ),
         audit_tables_count(column.cannot), Cell::of(ratios ? fit.lowest : kAuditTablesNone, 3),
         Cell::of(ratios ? fit.highest : kAuditTablesNone, 3), audit_tables_count(fit.tried)},
        source_text(study, {}));
  }
  return table;
}

Table make_published_findings_table(const Study& study, const Audit& audit) {
  Table table{"published-findings",
              "Findings in " + study.file().name,
              {"impossible: cannot have been measured as printed; contradicted: by another number "
               "of the file; doubtful: possible, but misleads"},
              {{"report", "report", true},
               {"severity", "severity", true},
               {"check", "check", true},
               {"lines", "lines", true},
               {"finding", "finding", true}},
              {}};
  for (const Finding& finding : audit.findings)
    table.add({finding.report.empty() ? "(across reports)" : finding.report,
               std::string(severity_text(finding.severity)), finding.check,
               lines_text(finding.lines), finding.text()},
              source_text(study, finding.lines));
  return table;
}

}  // namespace gradsync::report::published
