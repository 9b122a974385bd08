#pragma once

#include <vector>

#include "check/check.h"

namespace gradsync::check {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Library, name, compiled, loaded, path, identity)

struct LibraryFacts {
  std::vector<Library> libraries;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LibraryFacts, libraries)

/// Findings, and rank 0's libraries as a table.
CheckResult judge_libraries(const Ranks<LibraryFacts>& ranks);

/// Whether the libraries that are loaded are those the program was built with, and the same on all
/// ranks.
CheckResult check_libraries(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
