#pragma once

#include "base/cli/options.h"

namespace gradsync::report {

OptionTable compare_option_table();

/// `gradsync-report compare A B`: argv[0] is "compare". Returns 1 if a cell of B is slower than
/// that of A beyond the threshold. Throws Error kUsage, and kBadData if A and B share no cell.
int compare_command(int argc, const char* const* argv);

}  // namespace gradsync::report
