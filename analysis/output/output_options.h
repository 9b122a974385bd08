#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/cli/bound_option.h"
#include "base/table.h"

namespace gradsync::report {

/// In which forms tables are written, and where to.
struct OutputOptions {
  std::vector<const FormatSpec*> formats;
  std::filesystem::path output;  ///< a folder; empty: to stdout
  bool wide = false;             ///< all columns and notes, on standard output and in LaTeX
  std::vector<std::string> columns_chosen;  ///< names or heads; empty: all

  /// The tables with the chosen columns alone, in that order; a table that has none of them stays
  /// as it is. Throws Error kUsage for a column that no table has.
  std::vector<Table> with_chosen_columns(std::vector<Table> tables) const;

  /// output_columns(); 0: no limit.
  std::size_t columns() const;
};

/// --format and --output; `folder_help` says what the folder receives.
BoundGroup<OutputOptions> output_options(const std::string& folder_help);

}  // namespace gradsync::report
