#pragma once

#include <filesystem>
#include <memory>

#include "record/reader.h"

namespace gradsync {

/// Opens a journal as a run. What is behind the last sound record is left out and named in
/// remarks(); a journal cut at any byte behind its first record reads. Throws Error kBadData if not
/// even the first record, which describes the run, is whole.
std::unique_ptr<RunReader> open_journal(const std::filesystem::path& path);

}  // namespace gradsync
