// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/columns.h"
#include "analysis/read/curve_file.h"
#include "base/error.h"
#include "machine/host.h"
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

/// What a cell of a study trains, and how; what is not said is "?" or 0.
struct CellSetting {
  std::string mode;  ///< as --sync names it
  std::string model;
  std::int64_t ranks = 0, batch_per_rank = 0;
  std::int64_t batch_global = 0;  ///< ranks × batch per rank × accumulation
};

/// One run as tables and plots see it: what names it, and its numbers.
struct Run : CellSetting {
  std::filesystem::path path;
  std::string name;  ///< of the file, without its endings
  std::unique_ptr<RunReader> reader;
  SteadyRows steady;                     ///< the iterations that figures are made from
  std::vector<double> core_shares = {};  ///< by rank: core_shares()
  /// Whose calibration the run is held against where it holds none itself or --calibration names
  /// one; null if there is none.
  const CalibrationFile* calibration_file = nullptr;

  /// That of its calibration file, else its own; empty without both.
  const std::vector<CalibrationRow>& calibration() const {
    return calibration_file ? calibration_file->reader->calibration() : reader->calibration();
  }
  std::string status() const { return std::string(status_name(reader->status())); }
};

/// What `parse` reads in a text of a run; `otherwise` where it reads nothing.
template <typename Value>
Value parsed_or(Value (*parse)(std::string_view), std::string_view text, Value otherwise) {
  try {
    return parse(text);
  } catch (const Error&) {
    return otherwise;
  }
}

/// What a file does not say is shown as "?".
inline std::string or_unknown(const std::string& text) {
  return text.empty() ? "?" : text;
}

/// A cell of a sweep that ended without a run: <cell>.failed.json, with what grid.json beside it
/// says of its options. What the files do not say is empty, "?" or 0.
struct FailedCell : CellSetting {
  std::filesystem::path path;
  std::string cell;
  int exit_code = 0;
  std::string kind;     ///< "failed", "out of memory" or "not run"; empty in older records
  std::string message;  ///< the first line of the trainer's own words, or why it was not run

  /// "OUT OF MEMORY (exit code 81)", "FAILED (exit code 86): hang", or why it was not run.
  std::string verdict() const;
  /// The trainer said so, or the kernel ended it for want of memory.
  bool out_of_memory() const {
    return kind == "out of memory" || exit_code == static_cast<int>(ExitCode::kOutOfMemory);
  }
  /// A smaller batch ran out of memory.
  bool not_run() const { return kind == "not run"; }
};

/// The failures recorded in `places` (folders, searched through, and *.failed.json themselves), in
/// order of path. Files that are damaged are passed over with a line in `remarks`.
std::vector<FailedCell> find_failed_cells(const std::vector<std::string>& places,
                                          std::vector<std::string>& remarks);

/// The runs of a report, by model, ranks, mode, batch, then time of creation, so that repeats stand
/// together; the modes in the order of options/modes.def.
struct RunSet {
  std::vector<Run> runs;
  /// Files of gradsync-quantize, by model: they hold no iterations.
  std::vector<Run> quantized = {};
  /// Files of --calibration, and files of gradsync-calibrate found beside the runs; runs point at
  /// them.
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
  Run* described = nullptr;  ///< what describe_run made of it under another name; is taken
};
std::vector<FoundRun> find_runs(const std::vector<std::string>& places);

/// Opens and sorts them. A file that cannot be read as a run is an Error if it was named, and a
/// remark if it was found in a folder. Files of gradsync-calibrate are no runs, unless there is
/// nothing else. Throws Error kNoInput if no run is left. `about_to_open` is called before each
/// file with how many went before it, of how many.
using AboutToOpen = std::function<void(std::size_t done, std::size_t all)>;
/// Runs are held against the files of `calibration`, each against those of its ranks.
RunSet load_runs(const std::vector<FoundRun>& found, const AboutToOpen& about_to_open = {},
                 const std::vector<CurveFile>& calibration = {}, bool hide_sites = false);

/// Both of them with `more`, and the cells of sweeps that failed. Throws Error kBadData with the
/// verdict of each where the places hold failed cells only. `hide_sites`: hosts are "#1", "#2" in
/// the order of their runs, paths begin in the folder that holds all files, options that are paths
/// are names of files, and what a failed cell printed is left out, so that nothing made from the
/// set concerns the site alone. Files of `opened`, a set of the same places, are not read again:
/// it loses its readers.
RunSet load_places(const std::vector<std::string>& places, const AboutToOpen& about_to_open = {},
                   const std::vector<FoundRun>& more = {},
                   const std::vector<CurveFile>& calibration = {}, bool hide_sites = false,
                   RunSet* opened = nullptr);

/// Names the run from what it recorded. Its numbers are those of `described`, if given: the same
/// run under another name.
Run describe_run(const std::filesystem::path& path, std::unique_ptr<RunReader> reader,
                 Run* described = nullptr);

/// Whether a file holds calibration and nothing of a training run.
bool is_calibration_file(const RunReader& file);

/// An entry of the provenance of a run; empty where it has none.
std::string provenance_of(const RunReader& run, std::string_view name);

/// What traces say of a host that they do not name; other runs leave its name empty.
inline constexpr const char* kUnknownHost = "unknown";
bool has_known_host(const RankPlace& place);
/// Whether there are several ranks and all are on one host whose name is known.
bool on_one_host(const std::vector<RankPlace>& topology);

// --- cores ---------------------------------------------------------------------------------------

/// Ranks of one host that together have more threads than cores.
struct Oversubscription : CoreShortage {
  std::string host;
  bool operator==(const Oversubscription&) const = default;
};

/// The first host on which ranks have fewer cores than threads (core_shortage). Nothing where every
/// thread can have a core, and where the run does not record its cores or threads.
std::optional<Oversubscription> oversubscription(const std::vector<RankPlace>& topology);

/// "4 ranks with 4 threads had 2 cores on host node1".
std::string oversubscription_text(const Oversubscription& found);

/// With less than this part of a core a rank is short of it.
inline constexpr double kLeastCoreShare = 0.9;

/// Upper bound, by rank, of the part of one core that it got while it did not wait, over the steady
/// iterations but the one that lacked most, Σ min(cpu_time, busy) / Σ busy. Busy is the iteration
/// without waiting for data, for other ranks and for communication, where only waits that spin
/// count as busy; of ranks that are all on one host, at most what they got together of one core,
/// which the job needs at every moment (docs/numbers.md). All threads of the rank together are held
/// against one core, so it is an upper bound for any number of threads. NaN where the run does not
/// record it, and of a rank that computes on a GPU.
std::vector<double> core_shares(const Run& run);

/// Why the times of a run include waiting for a core: "oversubscribed", or "shared host" where a
/// rank got less than kLeastCoreShare of a core. Empty where they do not, as far as it is recorded.
std::string_view core_shortage(const Run& run);

/// Runs that lacked cores for the same reason, on the same host.
struct RunsShortOfCores {
  std::string_view word;         ///< core_shortage()
  std::string text;              ///< "4 ranks with 4 threads had 2 cores on host node1"
  std::vector<const Run*> runs;  ///< at least one
};
std::vector<RunsShortOfCores> runs_short_of_cores(const std::vector<Run>& runs);

}  // namespace gradsync::report
