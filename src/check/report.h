#pragma once

#include <string>
#include <vector>

#include "base/launcher.h"
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

/// Whether no MPI could find the other ranks: srun started several and gave neither PMIx nor PMI.
/// Open MPI 4 then ends the process in MPI_Init with its own text and code 1, Open MPI 5 makes each
/// process rank 0 of 1.
bool cannot_start(const Launcher& launcher);

/// Ends this process with kEnvironment if so; the first one reports it.
void end_if_it_cannot_start(const Launcher& launcher);

}  // namespace gradsync::check
