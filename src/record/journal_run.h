#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "record/reader.h"

namespace gradsync {

/// A run in its journal, with what is needed to resume it there.
class JournalRunReader : public RunReader {
 public:
  /// Bytes before the first record after the one that describes the run.
  virtual std::int64_t first_row_at() const = 0;
  /// Bytes up to the end of the last record that was read; remarks() says why the rest was not.
  virtual std::int64_t read_bytes() const = 0;
  /// Iterations in the first `bytes` of the journal. Nothing if these were not all read, or if a
  /// resume from an earlier place has dropped some of them: then `bytes` is on an abandoned branch.
  virtual std::optional<std::int64_t> iterations_at(std::int64_t bytes) const = 0;
};

/// Opens a journal as a run. What is behind the last sound record is left out and named in
/// remarks(); a journal cut at any byte behind its first record reads. Throws Error kBadData if not
/// even the first record, which describes the run, is whole.
std::unique_ptr<JournalRunReader> open_journal(const std::filesystem::path& path);

/// Whether a run has ended and can be read to its end.
bool holds_complete_run(const JournalRunReader& journal);

}  // namespace gradsync
