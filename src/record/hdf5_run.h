#pragma once

#include <filesystem>
#include <memory>

#include "record/reader.h"

namespace gradsync {

/// Writes `run` as an HDF5 file at `path`, which must not exist, in the layout of
/// docs/file-format.md. Reads the run in blocks, so the memory it takes does not grow with the
/// number of iterations. Throws Error kCannotCreate or kInputOutput; what it has written by then is
/// left for the caller to remove.
void write_hdf5(RunReader& run, const std::filesystem::path& path);

/// Opens an HDF5 run file. Throws Error kBadData for another schema, a newer one (both versions are
/// named), and for whatever is missing, of another type or shape, or larger than the file.
std::unique_ptr<RunReader> open_hdf5(const std::filesystem::path& path);

}  // namespace gradsync
