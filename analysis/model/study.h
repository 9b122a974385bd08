// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/experiments.h"
#include "analysis/figures/run_group.h"
#include "analysis/read/run_set.h"
#include "options/modes.h"
#include "sync/buckets.h"

namespace gradsync::report {

/// The exchange of a cell's typical iteration: medians over the iterations sampled, in seconds
/// since the start of the iteration.
struct BucketProfile {
  std::vector<BucketMessage> messages;  ///< ready: backward end less the median lead
  std::vector<double> transfer_s;       ///< of each: its shortest duration over the ranks
  double backward_begin_s = kNotMeasured, backward_end_s = kNotMeasured;  ///< of the last pass
};

/// Medians of a cell's iterations; `stalled_s` is exposed communication and waiting for stragglers.
/// other = iteration − compute − stalled, so the parts sum up.
struct CellMedians {
  double iteration_s = kNotMeasured, compute_s = kNotMeasured, exposed_s = kNotMeasured;
  double stalled_s = kNotMeasured;
  double other_s() const { return iteration_s - compute_s - stalled_s; }
};

/// One size of one collective, calibrated on `ranks` ranks.
struct CalibrationPoint {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string transport, cadence;
  double ranks = 1, bytes = 0, time_s = kNotMeasured;
  /// Calibration file that holds this point, if no run does. Applies only to families with a cell
  /// compared with that file.
  std::string file = {};
  /// Devices and MPI of the run that holds it; applies only to families with a cell on such.
  std::string machine = {};
  std::string job = {};  ///< of the run that holds it, if it is a contender

  auto operator<=>(const CalibrationPoint&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// One cell of a study: its repeats taken together, warm-up left out, and what the scaling model
/// and the verdict derive from them.
struct StudyCell {
  RunGroup group;
  /// "lenet, ddp, 4 ranks, 64 images per rank", with the settings where several cells are such.
  std::string name;
  /// Model, mode and every setting that changes the time of an iteration, but ranks and batch:
  /// cells of one family are one scaling law.
  std::string family;
  /// Settings in which the family differs from others of its model and mode: "transport=shm".
  std::string family_settings;
  std::string model, mode;
  std::string wire;               ///< --wire-dtype
  std::string transport = "mpi";  ///< --transport, as it was settled
  /// --bucket-cap and --first-bucket; NaN where the run does not say.
  double bucket_cap_bytes = kNotMeasured, first_bucket_bytes = kNotMeasured;
  double ranks = 1, batch = 0;  ///< per rank
  /// --batch-schedule: times of several batches, which no law of one batch describes. The cell has
  /// no batch and no exchange here, and families() leaves it out.
  bool scheduled = false;
  /// Whether ranks of any of the runs waited for a core (core_shortage). Such cells are families of
  /// their own, and nothing is concluded from them about scaling or bottlenecks.
  bool short_of_cores = false;

  /// An iteration is that of the slowest rank, since the ranks of a synchronous step end together;
  /// the parts are of means over the ranks that measured them.
  CellMedians medians;
  /// Parts of an iteration, means over iterations and ranks: as the tables summary and split show
  /// them.
  double exposed_share = kNotMeasured, compute_share = kNotMeasured;
  double wait_share = kNotMeasured;   ///< where straggler wait is no part of communication
  double optimizer_s = kNotMeasured;  ///< the part of compute that no batch changes
  /// Compute of single ranks in single iterations over the median of all of them, sorted.
  std::vector<double> imbalance;
  BucketProfile profile;  ///< empty where the model cannot replay the exchange
  /// What the exchange of an iteration takes from compute beside it, against a
  /// contender of its job that exchanges nothing; NaN where there is none.
  double contention_s = kNotMeasured;

  /// CalibrationFile::name() where the runs are held against one; empty if they hold calibration
  /// themselves or there is none.
  std::string calibration_file;
  /// Points that its runs hold, and those of a file of which it is the first cell held against it.
  std::vector<CalibrationPoint> calibration;

  const Run& run() const { return group.first(); }
  /// "ddp" or "ddp, transport=shm".
  std::string mode_text() const {
    return family_settings.empty() ? mode : mode + ", " + family_settings;
  }
  bool exchanges() const { return mode_named(mode).exchanges; }
  /// Whether collectives run beside the backward pass.
  bool overlapped() const { return mode_named(mode).overlaps; }
  /// Whether its runs tell straggler wait from communication: schema 1 does not, nor do traces
  /// without those of some ranks.
  bool waits_apart() const { return std::isfinite(wait_share); }
};

/// What the collectives of a run depend on, whatever the options: "NVIDIA H100, Open MPI 4.1.4".
std::string machine_of(const Run& run);

/// Some cells of a study.
using Cells = std::vector<const StudyCell*>;

/// The cells of each family, in order of their first, without cells of --batch-schedule.
std::vector<Cells> families(const std::vector<StudyCell>& study);

/// All points that cells of the study brought along, but those held by runs of `without`.
std::vector<CalibrationPoint> calibration_of(const std::vector<StudyCell>& study,
                                             const Cells& without = {});

/// The runs of a report with its cells and experiments. These are read from the files when they are
/// first asked for, and once: several tables, the verdict and plots are made from them.
class RunStudy {
 public:
  /// Keeps a reference: `set` outlives the study. Not explicit: a function of a study takes a set
  /// of runs as well.
  RunStudy(const RunSet& set) : set_(set) {}

  const RunSet& set() const { return set_; }
  /// What needs the runs alone takes a study as well.
  operator const RunSet&() const { return set_; }
  const std::vector<StudyCell>& cells() const;
  const std::vector<Experiment>& experiments() const;

 private:
  const RunSet& set_;
  mutable std::optional<std::vector<Experiment>> experiments_;
  mutable std::optional<std::vector<StudyCell>> cells_;
};

/// One entry a group of repeats, in the order of the set. Buckets are read from at most 64
/// iterations of a run, evenly spread over those after warm-up.
std::vector<StudyCell> study_cells(const RunStudy& runs);

}  // namespace gradsync::report
