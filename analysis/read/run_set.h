#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/read/curve_file.h"
#include "analysis/read/failed_cells.h"
#include "analysis/read/steady_rows.h"
#include "record/reader.h"

namespace gradsync::report {

/// Calibration without a run: a file of gradsync-calibrate, or the files of --calibration for one
/// number of ranks.
struct CalibrationFile {
  std::vector<std::filesystem::path> paths;
  std::unique_ptr<RunReader> reader;
  bool chosen = false;  ///< by --calibration, for all runs of its ranks

  /// "link.h5", or "all_reduce.txt, broadcast.txt".
  std::string name() const;
};

/// One run as tables and plots see it: what names it, and its numbers.
struct Run {
  std::filesystem::path path;
  std::string name;  ///< of the file, without its endings
  std::string mode;  ///< as --sync names it; "?" where the run does not say
  std::string model;
  std::int64_t ranks = 0;
  std::int64_t batch_per_rank = 0;  ///< 0 where the run does not say
  std::int64_t batch_global = 0;    ///< ranks × batch per rank × accumulation
  std::unique_ptr<RunReader> reader;
  SteadyRows steady;                     ///< the iterations that figures are made from
  std::vector<double> core_shares = {};  ///< by rank: core_shares() (oversubscription.h)
  /// Whose calibration the run is held against where it holds none itself or --calibration names
  /// one; null if there is none.
  const CalibrationFile* calibration_file = nullptr;

  /// That of its calibration file, else its own; empty without both.
  const std::vector<CalibrationRow>& calibration() const {
    return calibration_file ? calibration_file->reader->calibration() : reader->calibration();
  }
  std::string status() const { return std::string(status_name(reader->status())); }
};

/// The runs of a report, by model, ranks, mode, batch, then time of creation, so that repeats stand
/// together; the modes in the order none, gather-scatter, allreduce, ddp, data-parallel, c10d.
struct RunSet {
  std::vector<Run> runs;
  /// Files of gradsync-quantize, by model: they hold no iterations.
  std::vector<Run> quantized = {};
  /// Of --calibration, and files of gradsync-calibrate that were found beside the runs, which point
  /// at them.
  std::vector<CalibrationFile> calibrations = {};
  /// Cells of a sweep that ended without a run, in order of path.
  std::vector<FailedCell> failed = {};
  /// What was left out or is not whole, one line each, with the file.
  std::vector<std::string> remarks = {};
};

/// Runs and files of gradsync-quantize.
std::vector<const Run*> all_runs(const RunSet& set);

/// Files as they are; folders searched through for *.h5 and for journals whose run file is not
/// there; records of failed cells are passed over. A file found twice counts once. Throws Error
/// kNoInput for a missing one.
struct FoundRun {
  std::filesystem::path path;
  bool named = false;  ///< given itself, not found in a folder
  /// Reads what is no run file; empty: open_run(path).
  std::function<std::unique_ptr<RunReader>()> read = {};
};
std::vector<FoundRun> find_runs(const std::vector<std::string>& places);

/// Opens and sorts them. A file that cannot be read as a run is an Error if it was named, and a
/// remark if it was found in a folder. Files of gradsync-calibrate are no runs, unless there is
/// nothing else. Throws Error kNoInput if no run is left. `about_to_open` is called before each
/// file with how many went before it, of how many.
using AboutToOpen = std::function<void(std::size_t done, std::size_t all)>;
/// Runs are held against the files of `calibration`, each against those of its ranks.
RunSet load_runs(const std::vector<FoundRun>& found, const AboutToOpen& about_to_open = {},
                 const std::vector<CurveFile>& calibration = {});

/// Both of them with `more`, and the cells of sweeps that failed. Throws Error kBadData with the
/// verdict of each where the places hold failed cells only.
RunSet load_places(const std::vector<std::string>& places, const AboutToOpen& about_to_open = {},
                   const std::vector<FoundRun>& more = {},
                   const std::vector<CurveFile>& calibration = {});

/// Names the run from what it recorded.
Run describe_run(const std::filesystem::path& path, std::unique_ptr<RunReader> reader);

}  // namespace gradsync::report
