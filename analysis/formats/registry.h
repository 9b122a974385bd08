#pragma once

#include <string>
#include <vector>

#include "support/table.h"

namespace gradsync::report {

/// A form of a table. A new one is a file with a `render` function and a line in registry.cpp.
struct FormatSpec {
  std::string name;
  std::string extension;  ///< of its files
  std::string description;
  /// `wide`: with all columns, where people read it.
  std::string (*render)(const Table& table, bool wide);
};

const std::vector<FormatSpec>& formats();

}  // namespace gradsync::report
