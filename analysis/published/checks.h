#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/published/audit.h"

/// What cannot be, or misleads, in published numbers; checks.def lists the checks.
namespace gradsync::report::published {

struct Check {
  std::string_view name;
  std::string_view description;
  /// Appends to `audit.findings`; verdicts and columns are complete.
  void (*run)(const Study& study, Audit& audit);
};

const std::vector<Check>& checks();

/// Gathers cells with one and the same fault into one finding a report.
class Tally {
 public:
  /// `cell` is a clause such as "2 devices at batch 32: 33.27 s of 41.32 s".
  void add(const std::string& cell, const std::vector<std::size_t>& lines);
  bool empty() const { return cells_.empty(); }
  std::size_t count() const { return cells_.size(); }
  const std::vector<std::string>& cells() const { return cells_; }
  const std::vector<std::size_t>& lines() const { return lines_; }

 private:
  std::vector<std::string> cells_;
  std::vector<std::size_t> lines_;
};

/// Why something is a finding, a sentence, and what would make the values correct, a clause.
struct Reason {
  std::string why, right_if;
};

/// Adds the finding that `what` is so in the cells of the tally, unless there are none.
void report_tally(Audit& audit, const std::string& report, Severity severity,
                  std::string_view check, const std::string& what, const Tally& tally,
                  const Reason& reason);

/// The same of all rows of a column.
void report_column(Audit& audit, const DerivedColumn& column, Severity severity,
                   std::string_view check, const std::string& what, const Reason& reason);

#define GRADSYNC_AUDIT_CHECK(id, name, description) \
  void check_##id(const Study& study, Audit& audit);
#include "analysis/published/checks.def"
#undef GRADSYNC_AUDIT_CHECK

}  // namespace gradsync::report::published
