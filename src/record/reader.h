#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "record/run.h"

namespace gradsync {

/// Row-major numbers of [iteration, rank].
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

/// What the columns of a run that do not depend on the rank hold, one value an iteration.
struct IterationIndex {
  std::vector<std::int64_t> epoch, step, samples;
  std::vector<double> learning_rate;
  std::vector<bool> warmup;
};

/// Reads a run, from its HDF5 file or from a journal; which of the two is seen from the content.
///
/// Every size in the file is checked against the file's length before memory is taken. Matrices are
/// read when asked for and belong to the caller, so a table needs memory only for what it shows.
class RunReader {
 public:
  virtual ~RunReader() = default;

  virtual const RunInfo& info() const = 0;
  virtual RunStatus status() const = 0;
  /// What a reader should know: "journal: 12 bytes at the end are not a whole record, left out".
  virtual const std::vector<std::string>& remarks() const = 0;
  virtual std::size_t iterations() const = 0;
  virtual std::size_t ranks() const = 0;
  virtual const IterationIndex& index() const = 0;
  virtual Matrix time(Phase phase) = 0;
  virtual Matrix loss() = 0;
  virtual Matrix correct() = 0;
  virtual Matrix traffic(Traffic category) = 0;
  virtual const std::vector<EpochRow>& epochs() const = 0;
  virtual const std::vector<VerificationRow>& verification() const = 0;

  /// The value of an option of the run, or an empty text.
  std::string option(std::string_view name) const;
};

/// Opens a run file or a journal. Throws Error: kNoInput if it is missing, kBadData if it is neither
/// or is damaged (what, where), kInputOutput if it cannot be read.
std::unique_ptr<RunReader> open_run(const std::filesystem::path& path);

}  // namespace gradsync
