#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/published/search.h"
#include "analysis/published/study.h"

/// What an audit of published numbers finds: a verdict for each value, a convention for each
/// column, and findings, each with the lines it rests on.
namespace gradsync::report::published {

enum class Judgment { kPrimary, kAgrees, kDiffers, kCannot };

struct Verdict {
  Judgment judgment = Judgment::kPrimary;
  std::string text;  ///< "agrees", "differs: expected 1.78", "cannot be recomputed: why"
  Range expected = Range::unknown();  ///< in base units
  std::vector<std::size_t> lines;     ///< the numbers it was recomputed from
};

struct ColumnAudit {
  DerivedColumn column;
  Fit fit;
  std::size_t agree = 0, differ = 0, cannot = 0;
};

enum class Severity {
  kImpossible,    ///< cannot have been measured as it is printed
  kContradicted,  ///< another number of the same file says otherwise
  kDoubtful,      ///< possible, but a reader is easily misled
};

std::string_view severity_text(Severity severity);

struct Finding {
  std::string report;  ///< empty: across reports
  Severity severity = Severity::kDoubtful;
  std::string check;  ///< of checks.h
  std::string what;   ///< is found
  std::vector<std::string>
      cells;             ///< where: "2 devices at batch 32: 33.27 s of 16.1 s"; may be none
  std::string why;       ///< it cannot be, or what it means; a sentence, may be empty
  std::string right_if;  ///< what would make the values correct: a clause
  std::vector<std::size_t> lines;

  /// All of it in one line.
  std::string text() const;
  /// " Right if ...", a sentence behind the others.
  std::string right_text() const;
};

struct Audit {
  AuditOptions options;
  std::vector<Verdict> verdicts;  ///< one a row of the study
  std::vector<ColumnAudit> columns;
  std::vector<Finding> findings;  ///< by report, in the file's order, then by severity
};

/// Pure: the same study and options give the same audit.
Audit audit(const Study& study, const AuditOptions& options);

/// The values of a column as a verdict's text shows them: in the unit and with about the digits of
/// the printed value, at least three that count.
std::string shown_like(const Row& row, double base_value);

}  // namespace gradsync::report::published
