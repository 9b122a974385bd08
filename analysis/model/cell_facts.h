#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/model/measured_cell.h"
#include "options/modes.h"
#include "sync/buckets.h"

namespace gradsync::report {

/// The exchange of a cell's typical iteration: medians over the iterations sampled, in seconds
/// since the start of the iteration.
struct BucketProfile {
  std::vector<BucketMessage> messages;  ///< ready: backward end less the median lead
  std::vector<double> transfer_s;       ///< of each: its shortest duration over the ranks
  double backward_begin_s = kNotMeasured, backward_end_s = kNotMeasured;
  std::size_t iterations = 0;  ///< sampled
};

/// Medians of a cell's iterations; `stalled_s` is exposed communication and waiting for stragglers.
/// other = iteration − compute − stalled, so the parts sum up.
struct CellMedians {
  double iteration_s = kNotMeasured, compute_s = kNotMeasured, stalled_s = kNotMeasured;
  double other_s() const { return iteration_s - compute_s - stalled_s; }
};

/// What the scaling model knows of one cell.
struct CellFacts {
  std::string family, model, mode;
  std::string wire;               ///< --wire-dtype
  std::string transport = "mpi";  ///< --transport, as it was settled
  /// --bucket-cap and --first-bucket; NaN where the run does not say.
  double bucket_cap_bytes = kNotMeasured, first_bucket_bytes = kNotMeasured;
  double ranks = 1, batch = 0;  ///< per rank
  /// --batch-schedule: times of several batches, which no law of one batch describes. The cell has
  /// no batch and no exchange here, and families() leaves it out.
  bool scheduled = false;
  CellMedians medians;
  double optimizer_s = kNotMeasured;  ///< the part of compute that no batch changes
  /// Compute of single ranks in single iterations over the median of all of them, sorted.
  std::vector<double> imbalance;
  BucketProfile profile;
  /// What the exchange of an iteration takes from compute beside it, from windows of
  /// --counterfactual; NaN where there are none.
  double contention_s = kNotMeasured;
  /// CalibrationFile::name() where the runs are held against one; empty if they hold calibration
  /// themselves or there is none.
  std::string calibration_file = {};
  /// In which its family differs from others of its model and mode: "transport=shm".
  std::string family_settings = {};

  /// "ddp" or "ddp, transport=shm".
  std::string mode_text() const {
    return family_settings.empty() ? mode : mode + ", " + family_settings;
  }
  bool exchanges() const { return mode_named(mode).exchanges; }
  /// Whether collectives run beside the backward pass.
  bool overlapped() const { return mode_named(mode).overlaps; }
};

inline constexpr std::size_t kNoCell = static_cast<std::size_t>(-1);

/// One size of one collective, calibrated on `ranks` ranks.
struct CalibrationPoint {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string transport, cadence;
  double ranks = 1, bytes = 0, time_s = kNotMeasured;
  std::size_t cell = kNoCell;  ///< index of the cell whose run holds it
  /// That holds it instead of a run. It speaks only of families with a cell held against it.
  std::string file = {};
};

/// All that a set of runs says to the model.
struct StudyFacts {
  std::vector<CellFacts> cells;      ///< in the order of measured_cells
  std::vector<std::string> sources;  ///< files of each cell
  std::vector<CalibrationPoint> calibration;
};

/// Buckets are read from at most 64 iterations of a run, evenly spread over those after warm-up.
StudyFacts study_facts(const std::vector<MeasuredCell>& cells);

/// The runs of a report with what the scaling model knows of them. That is read from the files when
/// it is first asked for, and once: several tables, the verdict and a plot are made from it.
class RunStudy {
 public:
  /// Keeps a reference: `set` outlives the study. Not explicit: a function of a study takes a set
  /// of runs as well.
  RunStudy(const RunSet& set) : set_(set) {}

  const RunSet& set() const { return set_; }
  const std::vector<MeasuredCell>& cells() const;
  /// Of the cells, in their order.
  const StudyFacts& facts() const;

 private:
  const RunSet& set_;
  mutable std::optional<std::vector<MeasuredCell>> cells_;
  mutable std::optional<StudyFacts> facts_;
};

}  // namespace gradsync::report
