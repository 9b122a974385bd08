#pragma once

#include <string>
#include <vector>

#include "sweep/job_file.h"

namespace gradsync::sweep {

/// gradsync-report for the job's results, with the job's options for it; tables and plots go into
/// <results>/tables.
std::vector<std::string> report_command(const Job& job);

/// Runs it; its text is this program's result. `quiet`: it prints warnings and errors only. Returns
/// 0, or 1 if it failed.
int print_report(const Job& job, bool quiet);

}  // namespace gradsync::sweep
