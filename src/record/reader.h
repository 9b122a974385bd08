#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/schema.h"

namespace gradsync {

/// Row-major numbers of [iteration, rank].
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
  std::span<const double> row(std::size_t number) const {
    return std::span(values).subspan(number * columns, columns);
  }
};

/// What the columns of a run that do not depend on the rank hold, one value an iteration.
struct IterationIndex {
  std::vector<std::int64_t> iteration, epoch, step, samples;
  std::vector<double> learning_rate;
  std::vector<bool> warmup;
  std::size_t buckets = 0;  ///< the largest number of collectives in one iteration

  void add(const IterationHeader& row);
  /// Keeps the first `count` iterations; `buckets` is left.
  void resize(std::size_t count);
};

/// Reads a run, from its HDF5 file or from a journal; which of the two is seen from the content.
///
/// Every size in the file is checked against the file's length before memory is taken. Matrices are
/// read when asked for and belong to the caller, so a table needs memory only for what it shows;
/// those of a large run are better read in blocks of rows (analysis/read/columns.h). They throw
/// Error kBadData (which file, which data set, why) or kInputOutput, and kInternal unless first +
/// count <= iterations().
class RunReader {
 public:
  virtual ~RunReader() = default;

  virtual const RunInfo& info() const = 0;
  /// kRunning for a journal without an end: the job is running, or was killed.
  virtual RunStatus status() const = 0;
  /// ISO 8601, UTC; empty where the run has no end.
  virtual const std::string& finished() const = 0;
  /// What a reader should know: "journal: 12 bytes at the end are not a whole record, left out".
  virtual const std::vector<std::string>& remarks() const = 0;
  /// Whether damage to the numbers would be noticed: false for HDF5 files without checksums.
  virtual bool has_checksums() const { return true; }
  virtual std::size_t iterations() const = 0;
  virtual std::size_t ranks() const = 0;
  virtual const IterationIndex& index() const = 0;
  /// Rows `first` to `first + count`, or all.
  virtual Matrix time(Phase phase, std::size_t first, std::size_t count);
  Matrix time(Phase phase) { return time(phase, 0, iterations()); }
  /// Start of each iteration in seconds since the start of the run, on rank 0's clock.
  virtual Matrix begin(std::size_t first, std::size_t count);
  Matrix begin() { return begin(0, iterations()); }
  virtual Matrix loss(std::size_t first, std::size_t count);
  Matrix loss() { return loss(0, iterations()); }
  virtual Matrix correct(std::size_t first, std::size_t count);
  Matrix correct() { return correct(0, iterations()); }
  virtual Matrix traffic(Traffic category, std::size_t first, std::size_t count);
  Matrix traffic(Traffic category) { return traffic(category, 0, iterations()); }
  virtual Matrix usage(Usage what, std::size_t first, std::size_t count);
  /// Start of each collective in seconds since the start of that rank's iteration; column bucket ×
  /// ranks + rank, index().buckets × ranks of them. NaN where an iteration has fewer collectives.
  virtual Matrix bucket_starts(std::size_t first, std::size_t count);
  /// Iterations `first` to `first + count` with all that was recorded of them, buckets included.
  /// Requires first + count <= iterations() (Error kInternal otherwise).
  virtual std::vector<IterationRow> rows(std::size_t first, std::size_t count) = 0;
  virtual const RunLists& lists() const = 0;

  /// Lists that the run does not hold are empty.
  const std::vector<EpochRow>& epochs() const { return lists().epochs; }
  const std::vector<VerificationRow>& verification() const { return lists().verification; }
  const std::vector<CalibrationRow>& calibration() const { return lists().calibration; }
  const std::vector<WindowRow>& windows() const { return lists().windows; }
  const std::vector<ClockRow>& clocks() const { return lists().clocks; }
  const std::vector<TrafficRow>& traffic_totals() const { return lists().traffic_totals; }
  const std::vector<ReplicaRow>& replicas() const { return lists().replicas; }
  const std::vector<ResumeRow>& resumes() const { return lists().resumes; }
  const std::vector<DeviceSample>& device_samples() const { return lists().device_samples; }
  const std::vector<HostSample>& host_samples() const { return lists().host_samples; }
  const std::vector<LayerRow>& layers() const { return lists().layers; }
  const std::vector<ProbeRow>& probes() const { return lists().probes; }
  const Quantization& quantization() const;

  /// The value of an option of the run, or an empty text.
  std::string option(std::string_view name) const;

 private:
  Matrix of_ranks(std::size_t first, std::size_t count,
                  const std::function<double(const RankIteration&)>& value);

 protected:
  /// Throws Error kInternal unless first + count <= iterations().
  void require_rows(std::size_t first, std::size_t count) const;
};

/// How many iterations `rows` should read at once so that a block stays near 16 MiB.
std::size_t rows_per_block(std::size_t ranks, std::size_t buckets);

/// Opens a run file or a journal. Throws Error: kNoInput if it is missing, kBadData if it is
/// neither or is damaged (what, where), kInputOutput if it cannot be read.
std::unique_ptr<RunReader> open_run(const std::filesystem::path& path);

}  // namespace gradsync
