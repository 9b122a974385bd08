// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "analysis/report_options.h"
#include "base/cli/program_help.h"
#include "calibrate/calibrate_options.h"
#include "check/check.h"
#include "options/options.h"
#include "quantize/quantize_options.h"
#include "sweep/runner.h"

namespace gradsync {

struct Program {
  ProgramHelp help;
  OptionTable options;
  /// Reads the values as the program does. Throws Error kUsage for a wrong one.
  std::function<void(const OptionValues&)> read;
};

/// Those whose help is in the libraries.
inline std::vector<Program> programs() {
  return {
      {train_help(), train_option_table(), train_options},
      {calibrate::calibrate_help(), calibrate::calibrate_option_table(),
       calibrate::calibrate_options},
      {quantize::quantize_help(), quantize::quantize_option_table(), quantize::quantize_options},
      {check::check_help(), check::check_option_table(), check::check_options},
      {sweep::sweep_help(), sweep::sweep_option_table(), [](const OptionValues&) {}},
      {report::report_help(), report::report_option_table(), report::report_options}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

}  // namespace gradsync
