#pragma once

#include <string>
#include <vector>

#include "check/check.h"

/// The libraries of each rank. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

/// A shared library in this process.
struct LoadedFile {
  std::string path;      ///< without links
  std::string identity;  ///< "build ID 4586e9…", or size and checksum of its first 4 MiB
};

/// The libraries whose file name begins with `stem` ("libmpi.so"); each file once. An empty stem
/// means the program itself.
std::vector<LoadedFile> loaded_files(const std::string& stem);

/// Path of the first of them, or empty.
std::string loaded_path(const std::string& stem);

/// Path of such a library in the nearest ancestor of this process that has one: the launcher's.
/// Empty if none has, the system does not report it, or they are in another mount namespace (this
/// process is in a container).
std::string path_in_ancestors(const std::string& stem);

// --- libraries: whether the libraries that are loaded are those the program was built with, and
// the same on all ranks.

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Library, name, compiled, loaded, path, identity)

struct LibraryFacts {
  std::vector<Library> libraries;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LibraryFacts, libraries)

/// Findings, and rank 0's libraries as a table.
CheckResult judge_libraries(const Ranks<LibraryFacts>& ranks);

}  // namespace gradsync::check
