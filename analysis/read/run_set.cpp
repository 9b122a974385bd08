#include "analysis/read/run_set.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/read/calibration_files.h"
#include "analysis/read/oversubscription.h"
#include "base/error.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

auto sort_key(const Run& run) {
  return std::make_tuple(run.model, run.ranks, mode_position(run.mode), run.mode, run.batch_global,
                         run.reader->info().created, run.path);
}

bool is_run_file(const fs::path& path) {
  if (path.extension() == ".h5") return true;
  // A journal beside its finished file only says again what the file says.
  return path.extension() == ".journal" && !fs::exists(fs::path(path).replace_extension());
}

std::vector<fs::path> runs_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failure;
  fs::recursive_directory_iterator entry(folder, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure))
    if (entry->is_regular_file() && is_run_file(entry->path())) paths.push_back(entry->path());
  if (failure)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot search '{}': {}", folder.string(), failure.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string name_of(fs::path path) {
  if (path.extension() == ".journal") path.replace_extension();
  return path.stem().string();
}

/// An option as a number; 0 if it is none.
std::int64_t option_number(const RunReader& run, std::string_view option) {
  try {
    return std::max<std::int64_t>(0, parse_integer(run.option(option)));
  } catch (const Error&) {
    return 0;
  }
}

void fill_in_batch(Run& run) {
  const std::int64_t accumulate =
      std::max<std::int64_t>(1, option_number(*run.reader, "accumulate"));
  const std::int64_t parts = run.ranks * accumulate;
  run.batch_per_rank = option_number(*run.reader, "batch-per-rank");
  run.batch_global = option_number(*run.reader, "batch-global");
  const auto& samples = run.reader->index().samples;
  if (run.batch_global == 0) run.batch_global = run.batch_per_rank * parts;
  if (run.batch_global == 0 && !samples.empty()) run.batch_global = samples.front();
  // A run that was given its global batch carries the default of the other.
  run.batch_per_rank = run.batch_global / parts;
}

void remark_unchecked(RunSet& set) {
  const auto count = std::count_if(set.runs.begin(), set.runs.end(),
                                   [](const Run& run) { return !run.reader->has_checksums(); });
  if (count > 0)
    set.remarks.push_back(
        fmt::format("{} of {} runs are in files without checksums, as earlier versions wrote them: "
                    "damage to their numbers would not be noticed",
                    count, set.runs.size()));
}

/// "a, b and 4 more".
std::string names_of(const std::vector<const Run*>& runs) {
  constexpr std::size_t kMost = 6;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kMost, runs.size()); ++i)
    names.push_back(runs[i]->name);
  const std::string more =
      runs.size() > kMost ? fmt::format(" and {} more", runs.size() - kMost) : "";
  return fmt::format("{}{}", fmt::join(names, ", "), more);
}

void remark_scheduled(RunSet& set) {
  std::vector<const Run*> runs;
  for (const Run& run : set.runs)
    if (!run.reader->option("batch-schedule").empty()) runs.push_back(&run);
  if (!runs.empty())
    set.remarks.push_back(
        fmt::format("--batch-schedule changes the batch within {}: batches are shown as of the "
                    "first epoch; speedup, efficiency and the scaling model leave them out",
                    names_of(runs)));
}

void remark_short_of_cores(RunSet& set) {
  for (const RunsShortOfCores& some : runs_short_of_cores(set.runs))
    set.remarks.push_back(
        fmt::format("{}: {} ({}): the times of these runs include waiting for a core "
                    "and show neither how a mode scales nor what limits it",
                    some.word, some.text, names_of(some.runs)));
}

/// "3 of 24 iteration times are missing (rank 1)", with at most five ranks named.
std::string missing_text(const Run& run) {
  std::vector<std::size_t> ranks = run.steady.missing_ranks;
  const bool more = ranks.size() > 5;
  if (more) ranks.resize(5);
  return fmt::format(
      "{} of {} iteration times are missing (rank {}{}); an iteration counts as the "
      "slowest of the others",
      run.steady.missing, run.reader->iterations() * run.reader->ranks(), fmt::join(ranks, ", "),
      more ? ", …" : "");
}

/// What a reader of the tables must know of one file.
std::vector<std::string> remarks_on(const RunReader& reader) {
  std::vector<std::string> remarks = reader.remarks();
  for (const NamedText& entry : reader.info().provenance)
    if (entry.name.starts_with(kRemarkPrefix)) remarks.push_back(entry.value);
  if (reader.status() != RunStatus::kComplete)
    remarks.push_back(
        fmt::format("status {}, {} iterations", status_name(reader.status()), reader.iterations()));
  return remarks;
}

void load_one(const FoundRun& found, RunSet& set) {
  std::vector<std::string> remarks;
  try {
    auto reader = found.read ? found.read() : open_run(found.path);
    remarks = remarks_on(*reader);
    if (!reader->quantization().empty())
      set.quantized.push_back(describe_run(found.path, std::move(reader)));
    else if (is_calibration_file(*reader))
      set.calibrations.push_back({{found.path}, std::move(reader)});
    else
      set.runs.push_back(describe_run(found.path, std::move(reader)));
  } catch (const Error& error) {
    if (found.named) throw;
    set.remarks.push_back(fmt::format("left out: {}", error.what()));
    return;
  }
  if (!set.runs.empty() && set.runs.back().path == found.path && set.runs.back().steady.missing > 0)
    remarks.push_back(missing_text(set.runs.back()));
  for (const std::string& remark : remarks)
    set.remarks.push_back(fmt::format("{}: {}", found.path.string(), remark));
}

/// Alone, calibration is shown as far as tables and plots can: as runs without iterations.
void show_calibrations_alone(RunSet& set) {
  for (CalibrationFile& file : set.calibrations)
    set.runs.push_back(describe_run(file.paths.front(), std::move(file.reader)));
  set.calibrations.clear();
}

}  // namespace

std::string CalibrationFile::name() const {
  std::vector<std::string> names;
  for (const fs::path& path : paths)
    names.push_back(path.string());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<const Run*> all_runs(const RunSet& set) {
  std::vector<const Run*> all;
  for (const std::vector<Run>* list : {&set.runs, &set.quantized})
    for (const Run& run : *list)
      all.push_back(&run);
  return all;
}

std::vector<FoundRun> find_runs(const std::vector<std::string>& places) {
  std::vector<FoundRun> found;
  std::set<fs::path> seen;
  const auto add = [&](const fs::path& path, bool named) {
    if (seen.insert(fs::weakly_canonical(path)).second) found.push_back({path, named});
  };
  for (const std::string& place : places) {
    std::error_code failure;
    const fs::file_status status = fs::status(place, failure);
    if (!fs::exists(status))
      throw Error(ExitCode::kNoInput, fmt::format("'{}' does not exist{}", place,
                                                  failure ? ": " + failure.message() : ""));
    if (fs::is_directory(status))
      for (const fs::path& path : runs_in(place))
        add(path, false);
    else if (!is_failed_cell(place))
      add(place, true);
  }
  return found;
}

Run describe_run(const fs::path& path, std::unique_ptr<RunReader> reader) {
  Run run;
  run.path = path;
  run.name = name_of(path);
  run.mode = reader->quantization().empty() ? or_unknown(reader->option("sync")) : "int8";
  run.model = or_unknown(reader->option("model"));
  run.ranks = static_cast<std::int64_t>(reader->ranks());
  run.reader = std::move(reader);
  run.steady = steady_rows(*run.reader);
  run.core_shares = core_shares(run);
  fill_in_batch(run);
  return run;
}

RunSet load_runs(const std::vector<FoundRun>& found, const AboutToOpen& about_to_open,
                 const std::vector<CurveFile>& calibration) {
  RunSet set;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (about_to_open) about_to_open(i, found.size());
    load_one(found[i], set);
  }
  if (set.runs.empty() && set.quantized.empty()) show_calibrations_alone(set);
  if (set.runs.empty() && set.quantized.empty())
    throw Error(found.empty() ? ExitCode::kNoInput : ExitCode::kBadData,
                fmt::format("no run was found{}{}", set.remarks.empty() ? "" : "; ",
                            fmt::join(set.remarks, "; ")),
                "name files made by gradsync-train --output, or folders that hold them");
  for (std::vector<Run>* list : {&set.runs, &set.quantized})
    std::sort(list->begin(), list->end(),
              [](const Run& a, const Run& b) { return sort_key(a) < sort_key(b); });
  add_chosen_calibration(calibration, set);
  assign_calibration_files(set);
  remark_scheduled(set);
  remark_short_of_cores(set);
  remark_unchecked(set);
  return set;
}

RunSet load_places(const std::vector<std::string>& places, const AboutToOpen& about_to_open,
                   const std::vector<FoundRun>& more, const std::vector<CurveFile>& calibration) {
  std::vector<std::string> remarks;
  std::vector<FailedCell> failed = find_failed_cells(places, remarks);
  std::vector<FoundRun> found = find_runs(places);
  found.insert(found.end(), more.begin(), more.end());
  if (found.empty() && !failed.empty()) throw all_cells_failed(failed);
  RunSet set = load_runs(found, about_to_open, calibration);
  set.failed = std::move(failed);
  set.remarks.insert(set.remarks.end(), remarks.begin(), remarks.end());
  return set;
}

}  // namespace gradsync::report
