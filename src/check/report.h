#pragma once

#include <string>
#include <vector>

#include "check/finding.h"

namespace gradsync::check {

/// The row of a finding: result, name, what was seen. Ends with a newline.
std::string row_text(const Finding& finding);

/// The fixes of what warned or failed, a line each, and the summary.
std::string closing_text(const std::vector<Finding>& findings);

/// {"format": "gradsync-check/1", "command_line", "created", "result": "pass"|"fail",
///  "summary": {"pass", "warn", "fail", "skip"}, "checks": [{"id", "result", "seen", "fix"}],
///  "tables": {NAME: [{COLUMN: value}]}}
std::string json_text(const CheckResult& result, const std::string& command_line);

/// One test per finding; a warning is a pass with the warning as output.
std::string junit_text(const std::vector<Finding>& findings);

}  // namespace gradsync::check
