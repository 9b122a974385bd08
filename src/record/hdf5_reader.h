#pragma once

#include <filesystem>
#include <memory>

#include "record/reader.h"

namespace gradsync {

/// Opens an HDF5 run file. Throws Error kBadData for another schema, a newer one (both versions are
/// named), and for whatever is missing, of another type or shape, or larger than the file.
std::unique_ptr<RunReader> open_hdf5(const std::filesystem::path& path);

}  // namespace gradsync
