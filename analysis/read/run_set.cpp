// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/run_set.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "record/journal.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kEnding = ".failed.json";
constexpr std::size_t kMostNamed = 20;

bool is_failed_cell(const fs::path& path) {
  return path.filename().string().ends_with(kEnding);
}

bool is_run_file(const fs::path& path) {
  if (path.extension() == ".h5") return true;
  // A journal beside its finished file only says again what the file says, and what a sweep has set
  // aside is no run of its own: it was started again.
  return path.extension() == ".journal" && !fs::exists(fs::path(path).replace_extension()) &&
         !is_set_aside(path);
}

/// The files below a folder that `wanted` holds for, in order of path.
std::vector<fs::path> files_below(const fs::path& folder, bool (*wanted)(const fs::path&)) {
  std::vector<fs::path> paths;
  std::error_code failure;
  fs::recursive_directory_iterator entry(folder, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure))
    if (std::error_code loop; wanted(entry->path()) && entry->is_regular_file(loop))
      paths.push_back(entry->path());
  if (failure)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot search '{}': {}", folder.string(), failure.message()));
  std::ranges::sort(paths);
  return paths;
}

/// Null for what cannot be read.
json read_json(const fs::path& path) {
  try {
    json value = parse_json(read_text_file(path));
    return value.is_discarded() ? json() : value;
  } catch (const Error&) {
    return {};
  }
}

std::string text_of(const json& object, const std::string& key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// So that products of damaged numbers do not overflow.
std::int64_t in_range(std::int64_t number) {
  return std::clamp<std::int64_t>(number, 0, 1'000'000'000);
}

/// 0 for what is missing, negative or no number.
std::int64_t count_in(const json& object, const std::string& key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return in_range(found->get<std::int64_t>());
  const std::string text = found->is_string() ? found->get<std::string>() : "auto";
  return in_range(parsed_or<std::int64_t>(parse_integer, text, 0));
}

struct Batch {
  std::int64_t per_rank = 0, global = 0;
};

/// A run that was given its global batch carries the default of the other.
Batch batch_of(std::int64_t per_rank, std::int64_t global, std::int64_t ranks,
               std::int64_t accumulate) {
  const std::int64_t parts = in_range(ranks * std::max<std::int64_t>(1, accumulate));
  if (global == 0) global = in_range(per_rank * parts);
  return {global / parts, global};
}

/// What grid.json says of a cell; null if it says nothing.
json grid_cell(const fs::path& folder, const std::string& name) {
  const json grid = read_json(folder / "grid.json");
  if (!grid.is_object() || !grid.contains("cells") || !grid["cells"].is_array()) return {};
  for (const json& cell : grid["cells"])
    if (text_of(cell, "name") == name) return cell;
  return {};
}

FailedCell described(const fs::path& path, const json& failure) {
  FailedCell failed;
  failed.path = path;
  const std::string file = path.filename().string();
  failed.cell = file.substr(0, file.size() - kEnding.size());
  failed.exit_code = static_cast<int>(count_in(failure, "exit_code"));
  failed.kind = text_of(failure, "kind");
  const std::string message = text_of(failure, "message");
  failed.message = message.substr(0, message.find('\n'));
  const json cell = grid_cell(folder_of(path), failed.cell);
  const json options = cell.is_object() ? cell.value("options", json()) : json();
  failed.ranks = count_in(cell, "ranks");
  failed.mode = or_unknown(text_of(options, "sync"));
  failed.model = or_unknown(text_of(options, "model"));
  const Batch batch =
      batch_of(count_in(options, "batch-per-rank"), count_in(options, "batch-global"),
               std::max<std::int64_t>(1, failed.ranks), count_in(options, "accumulate"));
  failed.batch_per_rank = batch.per_rank;
  failed.batch_global = batch.global;
  return failed;
}

/// Whether it is the journal of a cell that failed before the end of its first iteration: the
/// record of the failure says all that there is.
bool is_begun_only(const fs::path& journal, const std::vector<FailedCell>& failed) {
  const auto is_of = [&](const FailedCell& cell) {
    return journal == journal_path(cell.path.parent_path() / (cell.cell + ".h5"));
  };
  if (std::ranges::none_of(failed, is_of)) return false;
  try {
    return open_run(journal)->iterations() == 0;
  } catch (const Error&) {
    return false;  // damaged: named where it is read
  }
}

/// For places that hold nothing else: the verdict of each cell (at least one).
Error all_cells_failed(const std::vector<FailedCell>& failed) {
  const bool some_not_run =
      std::ranges::any_of(failed, [](const auto& cell) { return cell.not_run(); });
  const std::string cells =
      failed.size() == 1 ? "the only cell" : fmt::format("all {} cells", failed.size());
  std::string text = cells + (some_not_run ? " failed or were not run" : " failed and left no run");
  for (std::size_t i = 0; i < std::min(kMostNamed, failed.size()); ++i)
    text += fmt::format("\n  {}: {}", failed[i].cell, failed[i].verdict());
  if (failed.size() > kMostNamed)
    text += fmt::format("\n  and {} more", failed.size() - kMostNamed);
  return Error(
      ExitCode::kBadData, text,
      fmt::format("{} has each message in full and names its log; then run the sweep again",
                  failed.front().path.string()));
}

}  // namespace

std::string FailedCell::verdict() const {
  if (not_run()) return message;
  return out_of_memory() ? fmt::format("OUT OF MEMORY (exit code {})", exit_code)
                         : fmt::format("FAILED (exit code {}){}{}", exit_code,
                                       message.empty() ? "" : ": ", message);
}

std::vector<FailedCell> find_failed_cells(const std::vector<std::string>& places,
                                          std::vector<std::string>& remarks) {
  std::set<fs::path> paths;
  for (const fs::path place : places) {
    if (is_failed_cell(place)) paths.insert(place);
    std::error_code failure;
    if (!fs::is_directory(place, failure)) continue;
    for (const fs::path& path : files_below(place, is_failed_cell))
      paths.insert(path);
  }
  std::vector<FailedCell> all;
  for (const fs::path& path : paths)
    if (const json failure = read_json(path); failure.is_object())
      all.push_back(described(path, failure));
    else
      remarks.push_back(
          fmt::format("left out: {} is not a record of a failed cell", path.string()));
  return all;
}

namespace {

std::vector<std::string> of_ranks(const RunReader& file, std::string RankPlace::*field) {
  return each(file.info().topology, field);
}

/// Each value once, in order of rank.
std::string named(const std::vector<std::string>& of_ranks) {
  std::vector<std::string> once;
  for (const std::string& value : of_ranks)
    add_once(once, value);
  return fmt::format("{}", fmt::join(once, ", "));
}

std::string differ(std::string_view what, const std::string& run, const std::string& file) {
  return fmt::format("{}: {} in the run, {} in the calibration", what, run, file);
}

/// "hosts: …" also where the same hosts hold other ranks.
std::string differ(std::string_view what, const std::vector<std::string>& run,
                   const std::vector<std::string>& file) {
  if (run == file) return {};
  const bool same_names = named(run) == named(file);
  return differ(what, same_names ? fmt::format("{}", fmt::join(run, ", ")) : named(run),
                same_names ? fmt::format("{}", fmt::join(file, ", ")) : named(file));
}

/// Why the calibration of a file says nothing about a run: "hosts: a, b in the run, c, d in the
/// calibration". Empty if ranks, the host and device of each rank and MPI itself are the same.
std::string why_not_calibrated_by(const RunReader& run, const RunReader& file) {
  if (run.ranks() != file.ranks())
    return differ("ranks", std::to_string(run.ranks()), std::to_string(file.ranks()));
  for (const auto& [what, field] :
       {std::pair{"hosts", &RankPlace::host}, std::pair{"devices", &RankPlace::device},
        std::pair{"devices", &RankPlace::device_uuid}}) {
    const std::string why = differ(what, of_ranks(run, field), of_ranks(file, field));
    if (!why.empty()) return why;
  }
  const auto mpi_of = [](const RunReader& one) {
    const std::string text = provenance_of(one, "mpi");
    return text.substr(0, text.find('\n'));
  };
  const std::string ours = mpi_of(run), theirs = mpi_of(file);
  return ours == theirs ? "" : differ("MPI", ours, theirs);
}

const CalibrationFile* calibration_file_of(const Run& run,
                                           const std::vector<CalibrationFile>& files) {
  const CalibrationFile* best = nullptr;
  const auto created = [](const CalibrationFile& file) { return file.reader->info().created; };
  for (const CalibrationFile& file : files)
    if (!file.chosen && why_not_calibrated_by(*run.reader, *file.reader).empty() &&
        (!best || created(file) >= created(*best)))
      best = &file;
  return best;
}

const CalibrationFile* chosen_for(const Run& run, const std::vector<CalibrationFile>& files) {
  const auto found = std::ranges::find_if(files, [&](const CalibrationFile& file) {
    return file.chosen && file.reader->ranks() == run.reader->ranks();
  });
  return found == files.end() ? nullptr : &*found;
}

std::string chosen_and_not_used(const CalibrationFile& file, const RunSet& set) {
  std::set<std::size_t> ranks;
  for (const Run& run : set.runs)
    ranks.insert(run.reader->ranks());
  return fmt::format("calibration {} is not used: ranks: {} in the runs, {} in the calibration",
                     file.name(), fmt::join(ranks, ", "), file.reader->ranks());
}

/// Why no run is compared with a calibration file.
std::string remark_on(const CalibrationFile& file, const std::vector<const Run*>& without) {
  const auto of_no_use = [&](const std::string& why) {
    return fmt::format("calibration {} is not used: {}", file.name(), why);
  };
  if (without.empty()) return of_no_use("the runs hold their own");
  for (const Run* run : without) {
    const std::string why = why_not_calibrated_by(*run->reader, *file.reader);
    if (!why.empty()) return of_no_use(fmt::format("{} ({})", why, run->path.string()));
  }
  return of_no_use("a later one is of the same ranks");
}

/// What a set calls files and hosts (load_places).
class SiteNames {
 public:
  SiteNames(bool hidden, const std::vector<FoundRun>& found) : hidden_(hidden) {
    for (const FoundRun& run : found)
      if (const fs::path folder = absolute(run.path).parent_path(); &run == &found.front())
        common_ = folder;
      else
        while (common_.has_relative_path() &&
               !folder.string().starts_with((common_ / "").string()) && folder != common_)
          common_ = common_.parent_path();
  }

  fs::path path(const fs::path& path) const {
    if (!hidden_) return path;
    const fs::path below = absolute(path).lexically_relative(common_);
    return below.empty() || *below.begin() == ".." ? path.filename() : below;
  }
  /// A text that may name the path.
  std::string text(std::string text, const fs::path& named) const {
    const std::string from = named.string(), to = path(named).string();
    if (hidden_ && !from.empty())
      for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
  }
  void rename(RunInfo& info) {
    if (!hidden_) return;
    for (RankPlace& place : info.topology) {
      if (!has_known_host(place)) continue;
      const auto known = hosts_.try_emplace(place.host, fmt::format("#{}", hosts_.size() + 1));
      place.host = known.first->second;
    }
    for (ConfigEntry& option : info.config)
      if (option.value.find('/') != std::string::npos) option.value = file_name(option.value);
  }
  void rename(FailedCell& failed) {
    if (!hidden_) return;
    failed.path = path(failed.path);
    if (failed.model.find('/') != std::string::npos) failed.model = file_name(failed.model);
    if (!failed.not_run()) failed.message.clear();
  }

 private:
  /// "net.pt"; "net.pt #2" where another file of that name was seen before.
  std::string file_name(const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    std::vector<std::string>& known = files_[name];
    const auto number = std::ranges::find(known, path) - known.begin() + 1;
    if (number > std::ssize(known)) known.push_back(path);
    return number == 1 ? name : fmt::format("{} #{}", name, number);
  }
  static fs::path absolute(const fs::path& path) { return fs::absolute(path).lexically_normal(); }

  bool hidden_;
  fs::path common_;
  std::map<std::string, std::string> hosts_;
  std::map<std::string, std::vector<std::string>> files_;  ///< paths by the name of their file
};

/// Reads the files of --calibration into the set, those of the same ranks as one.
void add_chosen_calibration(const std::vector<CurveFile>& files, const SiteNames& names,
                            RunSet& set) {
  std::map<std::int64_t, std::pair<std::vector<std::filesystem::path>, RunLists>> by_ranks;
  for (const CurveFile& file : files) {
    CurveFileContent content = read_curve_file(file);
    for (const std::string& remark : content.remarks)
      set.remarks.push_back(names.text(remark, file.path));
    for (const Curves& curves : content.curves) {
      auto& [paths, lists] = by_ranks[curves.ranks];
      paths.push_back(names.path(file.path));
      lists.calibration.insert(lists.calibration.end(), curves.rows.begin(), curves.rows.end());
    }
  }
  for (auto& [ranks, content] : by_ranks) {
    RunInfo info;
    info.topology.resize(static_cast<std::size_t>(ranks));
    set.calibrations.push_back(
        {std::move(content.first),
         std::make_unique<RunInMemory>(std::move(info), std::move(content.second)), true});
  }
}

/// Gives each run the chosen calibration of its ranks; where there is none, and the run holds none
/// itself, that of a file it can be held against, the latest if there are several. Names in the
/// remarks of the set the files that are not used, and why.
void assign_calibration_files(RunSet& set) {
  std::vector<const Run*> without;
  std::set<const CalibrationFile*> used;
  for (Run& run : set.runs) {
    run.calibration_file = chosen_for(run, set.calibrations);
    if (!run.calibration_file && run.reader->calibration().empty()) {
      without.push_back(&run);
      run.calibration_file = calibration_file_of(run, set.calibrations);
    }
    used.insert(run.calibration_file);
  }
  for (const CalibrationFile& file : set.calibrations)
    if (!used.contains(&file))
      set.remarks.push_back(file.chosen ? chosen_and_not_used(file, set)
                                        : remark_on(file, without));
}

}  // namespace

std::string provenance_of(const RunReader& run, std::string_view name) {
  for (const NamedText& entry : run.info().provenance)
    if (entry.name == name) return entry.value.substr(0, entry.value.find_last_not_of(" \n") + 1);
  return {};
}

bool is_calibration_file(const RunReader& file) {
  return file.iterations() == 0 && !file.calibration().empty() && file.option("sync").empty();
}

namespace {

auto sort_key(const Run& run) {
  return std::make_tuple(run.model, run.ranks, mode_position(run.mode), run.mode, run.batch_global,
                         run.reader->info().created, run.path);
}

std::string name_of(fs::path path) {
  if (path.extension() == ".journal") path.replace_extension();
  return path.stem().string();
}

std::int64_t option_number(const RunReader& run, std::string_view option) {
  return in_range(parsed_or<std::int64_t>(parse_integer, run.option(option), 0));
}

void fill_in_batch(Run& run) {
  const RunReader& reader = *run.reader;
  const auto& samples = reader.index().samples;
  const std::int64_t per_rank = option_number(reader, "batch-per-rank");
  std::int64_t global = option_number(reader, "batch-global");
  if (global == 0 && per_rank == 0 && !samples.empty()) global = samples.front();
  const Batch batch = batch_of(per_rank, global, run.ranks, option_number(reader, "accumulate"));
  run.batch_per_rank = batch.per_rank;
  run.batch_global = batch.global;
}

void remark_unchecked(RunSet& set) {
  const auto count =
      std::ranges::count_if(set.runs, [](const Run& run) { return !run.reader->has_checksums(); });
  if (count > 0)
    set.remarks.push_back(
        fmt::format("without checksums, as earlier versions wrote them: {} of {}; damage to their "
                    "numbers would not be noticed",
                    count, count_text(set.runs.size(), "file")));
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
    remarks.push_back(fmt::format("status {}, {}", status_name(reader.status()),
                                  count_text(reader.iterations(), "iteration")));
  return remarks;
}

void load_one(const FoundRun& found, SiteNames& names, RunSet& set) {
  const fs::path path = names.path(found.path);
  std::vector<std::string> remarks;
  try {
    auto reader = found.read ? found.read() : open_run(found.path);
    names.rename(reader->info());
    remarks = remarks_on(*reader);
    if (!reader->quantization().empty())
      set.quantized.push_back(describe_run(path, std::move(reader), found.described));
    else if (is_calibration_file(*reader))
      set.calibrations.push_back({{path}, std::move(reader)});
    else
      set.runs.push_back(describe_run(path, std::move(reader), found.described));
  } catch (const Error& error) {
    if (found.named) throw;
    set.remarks.push_back("left out: " + names.text(error.what(), found.path));
    return;
  }
  if (!set.runs.empty() && set.runs.back().path == path && set.runs.back().steady.missing > 0)
    remarks.push_back(missing_text(set.runs.back()));
  for (const std::string& remark : remarks)
    set.remarks.push_back(fmt::format("{}: {}", path.string(), remark));
}

const fs::path& path_of(const Run& run) {
  return run.path;
}

const fs::path& path_of(const CalibrationFile& file) {
  return file.paths.front();
}

/// A run counts once, however often it was copied: the copy with the most iterations stays.
template <typename RunOrFile>
void leave_out_copies(std::vector<RunOrFile>& runs, std::vector<std::string>& remarks) {
  std::ranges::stable_sort(runs, std::greater(),
                           [](const RunOrFile& run) { return run.reader->iterations(); });
  std::map<std::string, fs::path> kept;
  std::erase_if(runs, [&](const RunOrFile& run) {
    const std::string& id = run.reader->info().run_id;
    if (id.empty()) return false;
    const auto [first, is_new] = kept.try_emplace(id, path_of(run));
    if (!is_new)
      remarks.push_back(fmt::format("left out: {} holds the same run as {} ({})",
                                    path_of(run).string(), first->second.string(), printable(id)));
    return !is_new;
  });
}

/// Each run that is in the set is read from there.
void read_from(RunSet& opened, std::vector<FoundRun>& found) {
  std::map<fs::path, std::pair<std::unique_ptr<RunReader>*, Run*>> known;
  for (std::vector<Run>* list : {&opened.runs, &opened.quantized})
    for (Run& run : *list)
      known.emplace(run.path, std::pair(&run.reader, &run));
  for (CalibrationFile& file : opened.calibrations)
    if (!file.chosen) known.emplace(file.paths.front(), std::pair(&file.reader, nullptr));
  for (FoundRun& run : found)
    if (const auto at = known.find(run.path); at != known.end()) {
      run.read = [reader = at->second.first] { return std::move(*reader); };
      run.described = at->second.second;
    }
}

}  // namespace

std::string CalibrationFile::name() const {
  std::vector<std::string> names =
      each(paths, [](const fs::path& path) { return printable(path.string()); });
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
      throw Error(
          ExitCode::kNoInput,
          fmt::format("'{}' does not exist{}", place, failure ? ": " + failure.message() : ""),
          "name run files, journals or folders that are there");
    if (fs::is_directory(status))
      for (const fs::path& path : files_below(place, is_run_file))
        add(path, false);
    else if (!is_failed_cell(place))
      add(place, true);
  }
  return found;
}

Run describe_run(const fs::path& path, std::unique_ptr<RunReader> reader, Run* described) {
  Run run;
  if (described) run = std::move(*described);
  run.path = path;
  run.name = printable(name_of(path));
  run.mode = reader->quantization().empty() ? or_unknown(reader->option("sync")) : "int8";
  run.model = or_unknown(reader->option("model"));
  run.ranks = static_cast<std::int64_t>(reader->ranks());
  run.reader = std::move(reader);
  if (described) return run;
  run.steady = steady_rows(*run.reader);
  run.core_shares = core_shares(run);
  fill_in_batch(run);
  return run;
}

namespace {

RunSet load_named(const std::vector<FoundRun>& found, const AboutToOpen& about_to_open,
                  const std::vector<CurveFile>& calibration, SiteNames& names) {
  RunSet set;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (about_to_open) about_to_open(i, found.size());
    load_one(found[i], names, set);
  }
  for (std::vector<Run>* list : {&set.runs, &set.quantized})
    leave_out_copies(*list, set.remarks);
  leave_out_copies(set.calibrations, set.remarks);
  // Alone, calibration is shown as far as tables and plots can: as runs without iterations.
  if (set.runs.empty() && set.quantized.empty())
    for (CalibrationFile& file : std::exchange(set.calibrations, {}))
      set.runs.push_back(describe_run(file.paths.front(), std::move(file.reader)));
  if (set.runs.empty() && set.quantized.empty())
    throw Error(found.empty() ? ExitCode::kNoInput : ExitCode::kBadData,
                fmt::format("no run was found{}{}", set.remarks.empty() ? "" : "; ",
                            fmt::join(set.remarks, "; ")),
                "name files made by gradsync-train --output, or folders that hold them");
  for (std::vector<Run>* list : {&set.runs, &set.quantized})
    std::ranges::sort(*list, [](const Run& a, const Run& b) { return sort_key(a) < sort_key(b); });
  add_chosen_calibration(calibration, names, set);
  assign_calibration_files(set);
  remark_scheduled(set);
  remark_short_of_cores(set);
  remark_unchecked(set);
  return set;
}

}  // namespace

RunSet load_runs(const std::vector<FoundRun>& found, const AboutToOpen& about_to_open,
                 const std::vector<CurveFile>& calibration, bool hide_sites) {
  SiteNames names(hide_sites, found);
  return load_named(found, about_to_open, calibration, names);
}

RunSet load_places(const std::vector<std::string>& places, const AboutToOpen& about_to_open,
                   const std::vector<FoundRun>& more, const std::vector<CurveFile>& calibration,
                   bool hide_sites, RunSet* opened) {
  std::vector<std::string> remarks;
  std::vector<FailedCell> failed = find_failed_cells(places, remarks);
  std::vector<FoundRun> found = find_runs(places);
  std::erase_if(found, [&](const FoundRun& run) {
    return std::ranges::any_of(more, [&](const FoundRun& other) {
      std::error_code failure;
      return fs::equivalent(run.path, other.path, failure);
    });
  });
  found.insert(found.end(), more.begin(), more.end());
  std::erase_if(found, [&](const FoundRun& run) { return is_begun_only(run.path, failed); });
  if (found.empty() && !failed.empty()) throw all_cells_failed(failed);
  if (opened) read_from(*opened, found);
  SiteNames names(hide_sites, found);
  RunSet set = load_named(found, about_to_open, calibration, names);
  for (FailedCell& cell : failed)
    names.rename(cell);
  if (hide_sites && !remarks.empty())
    remarks = {"left out, not records of failed cells: " + count_text(remarks.size(), "file")};
  set.failed = std::move(failed);
  set.remarks.insert(set.remarks.end(), remarks.begin(), remarks.end());
  return set;
}

}  // namespace gradsync::report
