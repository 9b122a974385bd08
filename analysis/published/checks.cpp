#include "analysis/published/checks.h"

#include <algorithm>

#include <fmt/format.h>

namespace gradsync::report::published {

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
#define GRADSYNC_AUDIT_CHECK(id, name, description) {name, description, check_##id},
#include "analysis/published/checks.def"
#undef GRADSYNC_AUDIT_CHECK
  };
  return all;
}

void Tally::add(const std::string& cell, const std::vector<std::size_t>& lines) {
  cells_.push_back(cell);
  lines_.insert(lines_.end(), lines.begin(), lines.end());
}

void report_tally(Audit& audit, const std::string& report, Severity severity,
                  std::string_view check, const std::string& what, const Tally& tally,
                  const Reason& reason) {
  if (tally.empty()) return;
  Finding finding{report,        severity,   std::string(check), what,
                  tally.cells(), reason.why, reason.right_if,    tally.lines()};
  std::sort(finding.lines.begin(), finding.lines.end());
  finding.lines.erase(std::unique(finding.lines.begin(), finding.lines.end()), finding.lines.end());
  audit.findings.push_back(std::move(finding));
}

void report_column(Audit& audit, const DerivedColumn& column, Severity severity,
                   std::string_view check, const std::string& what, const Reason& reason) {
  Finding finding{column.report,   severity, std::string(check), what, {}, reason.why,
                  reason.right_if, {}};
  for (const Row* row : column.rows)
    finding.lines.push_back(row->line);
  audit.findings.push_back(std::move(finding));
}

}  // namespace gradsync::report::published
