// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  std::vector<std::int64_t> round;
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

  const RunInfo& info() const { return info_; }
  /// For other names of hosts and files.
  RunInfo& info() { return info_; }
  /// kRunning for a journal without an end: the job is running, or was killed.
  RunStatus status() const { return end_.status; }
  /// ISO 8601, UTC; empty where the run has no end.
  const std::string& finished() const { return end_.finished; }
  /// What a reader should know: "journal: 12 bytes at the end are not a whole record, left out".
  const std::vector<std::string>& remarks() const { return remarks_; }
  /// Whether damage to the numbers would be noticed: false for HDF5 files without checksums.
  virtual bool has_checksums() const { return true; }
  std::size_t iterations() const { return index_.iteration.size(); }
  std::size_t ranks() const { return info_.topology.size(); }
  const IterationIndex& index() const { return index_; }
  /// Rows `first` to `first + count`, or all, of a field of RankIteration; NaN where the run lacks
  /// it.
  virtual Matrix matrix(const Field& field, std::size_t first, std::size_t count);
  Matrix time(Phase phase, std::size_t first, std::size_t count) {
    return matrix(phase_field(phase), first, count);
  }
  Matrix time(Phase phase) { return time(phase, 0, iterations()); }
  /// Start of each iteration in seconds since the start of the run, on rank 0's clock.
  Matrix begin(std::size_t first, std::size_t count) {
    return matrix({"time", "begin"}, first, count);
  }
  Matrix begin() { return begin(0, iterations()); }
  Matrix loss(std::size_t first, std::size_t count) { return matrix({"", "loss"}, first, count); }
  Matrix loss() { return loss(0, iterations()); }
  Matrix correct(std::size_t first, std::size_t count) {
    return matrix({"", "correct"}, first, count);
  }
  Matrix correct() { return correct(0, iterations()); }
  /// Bytes, NaN where they are not known.
  Matrix traffic(Traffic category, std::size_t first, std::size_t count);
  Matrix traffic(Traffic category) { return traffic(category, 0, iterations()); }
  Matrix usage(Usage what, std::size_t first, std::size_t count) {
    return matrix(usage_field(what), first, count);
  }
  /// Start of each collective in seconds since the start of that rank's iteration; column bucket ×
  /// ranks + rank, index().buckets × ranks of them. NaN where an iteration has fewer collectives.
  virtual Matrix bucket_starts(std::size_t first, std::size_t count);
  /// Iterations `first` to `first + count` with all that was recorded of them, buckets included.
  /// Requires first + count <= iterations() (Error kInternal otherwise).
  virtual std::vector<IterationRow> rows(std::size_t first, std::size_t count) = 0;

  /// Lists that the run does not hold are empty.
  const RunLists& lists() const { return lists_; }
#define GRADSYNC_ROWS(list, Row, ...)    \
  const std::vector<Row>& list() const { \
    return lists_.list;                  \
  }
#include "record/rows.def"
#undef GRADSYNC_ROWS
  const Quantization& quantization() const;

  /// The value of an option of the run, or an empty text.
  std::string option(std::string_view name) const;

 protected:
  /// Throws Error kInternal unless first + count <= iterations().
  void require_rows(std::size_t first, std::size_t count) const;

  RunInfo info_;
  RunEnd end_;
  IterationIndex index_;
  RunLists lists_;
  std::vector<std::string> remarks_;
};

/// How many iterations `rows` should read at once so that a block stays near 16 MiB.
std::size_t rows_per_block(std::size_t ranks, std::size_t buckets);

/// Opens a run file or a journal. Throws Error: kNoInput if it is missing, kBadData if it is
/// neither or is damaged (what, where), kInputOutput if it cannot be read.
std::unique_ptr<RunReader> open_run(const std::filesystem::path& path);

/// A complete run that is no file: made of what another tool wrote. It has no remarks: what the
/// tool did not write is provenance (kRemarkPrefix), which a saved run keeps.
class RunInMemory : public RunReader {
 public:
  explicit RunInMemory(RunInfo info = {}, RunLists lists = {}) {
    set(std::move(info));
    lists_ = std::move(lists);
  }

  void set(RunInfo info) {
    info_ = std::move(info);
    end_ = {RunStatus::kComplete, info_.created};
  }
  void add(IterationRow row) {
    index_.add(row.header());
    index_.buckets = std::max(index_.buckets, row.buckets.size());
    rows_.push_back(std::move(row));
  }
  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override {
    require_rows(first, count);
    const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  std::vector<IterationRow> rows_;
};

/// Writes `run` as an HDF5 file at `path`, which must not exist, in the layout of
/// docs/file-format.md. Reads the run in blocks, so the memory it takes does not grow with the
/// number of iterations. Throws Error kCannotCreate or kInputOutput; what it has written by then is
/// left for the caller to remove.
void write_hdf5(RunReader& run, const std::filesystem::path& path);

/// Opens an HDF5 run file. Throws Error kBadData for another schema, a newer one (both versions are
/// named), and for whatever is missing, of another type or shape, or larger than the file.
std::unique_ptr<RunReader> open_hdf5(const std::filesystem::path& path);

}  // namespace gradsync
