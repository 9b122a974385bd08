// SPDX-License-Identifier: BSD-3-Clause
#include "sweep/cell_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "checkpoint/checkpoint_folder.h"
#include "options/epoch_plan.h"
#include "options/option_roles.h"
#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

}  // namespace

CellFiles cell_files(const std::filesystem::path& folder, const GridCell& cell) {
  const auto file = [&](const char* ending) { return folder / (cell.name + ending); };
  return {file(".h5"),          file(".h5.journal"), file(".log"),
          file(".failed.json"), file(".running"),    file(".checkpoints")};
}

CellFiles job_files(const fs::path& folder, const CellJob& cells) {
  CellFiles files = cell_files(folder, cells.front());
  std::string names;
  for (const GridCell& cell : cells)
    names += (names.empty() ? "" : ",") + cell_files(folder, cell).run.filename().string();
  files.run = folder / names;
  return files;
}

bool is_resumable(const GridCell& cell, const CellFiles& files) {
  const std::string* const resume = cell.option("resume");
  if (resume != nullptr && *resume == "no") return false;
  if (!std::filesystem::exists(files.journal)) return false;
  if (holds_complete_run(files.run)) return true;
  std::error_code missing;
  for (const auto& file : std::filesystem::directory_iterator(files.checkpoints, missing))
    if (file.path().extension() == ".safetensors") return true;
  return false;
}

namespace {

// What the journal or file of a run says of its experiment; empty where it is of none, or damaged.
std::map<std::string, std::string> experiment_in(const fs::path& path) {
  std::map<std::string, std::string> facts;
  try {
    const std::unique_ptr<RunReader> run = open_run(path);
    for (const NamedText& fact : run->info().experiment)
      facts[fact.name] = fact.value;
  } catch (const Error&) {
    // The trainer refuses it with a message.
  }
  return facts;
}

// The cells in the order of the experiment's contenders; none if one of them is not among them.
CellJob contenders_in(const fs::path& folder, const std::string& contenders,
                      const std::map<std::string, GridCell>& begun) {
  CellJob cells;
  for (const std::string& name : split_list(contenders, ',')) {
    const auto found = begun.find(name);
    if (found != begun.end())
      cells.push_back(found->second);
    else if (const GridCell control = control_of(cells.empty() ? GridCell() : cells.front());
             !name.ends_with(kControlEnding) || !is_resumable(control, cell_files(folder, control)))
      return {};
  }
  return cells;
}

}  // namespace

void publish_ended(const fs::path& folder, const std::vector<GridCell>& cells,
                   const std::vector<GridCell>& grid) {
  std::map<fs::path, std::string> complete;  // run files to be made, experiments
  for (const GridCell& cell : cells)
    for (const GridCell& one : {cell, control_of(cell)}) {
      const CellFiles files = cell_files(folder, one);
      if (!fs::exists(files.run) && holds_complete_run(files.run))
        if (const std::string id = experiment_in(files.journal)["id"]; !id.empty())
          complete.emplace(files.run, id);
    }
  if (complete.empty()) return;
  std::set<std::string> ended;
  for (const GridCell& cell : grid)
    if (const CellFiles files = cell_files(folder, cell); is_complete(files))
      ended.insert(experiment_in(files.run)["id"]);
  for (const auto& [run, id] : complete)
    if (ended.contains(id)) finish_interrupted(run);
}

std::vector<CellStart> starts_of(const fs::path& folder, const CellJob& cells) {
  std::vector<CellStart> starts;
  std::map<std::string, std::map<std::string, GridCell>> begun;  // experiment, contender
  std::map<std::string, std::string> contenders;
  for (const GridCell& cell : cells) {
    const CellFiles files = cell_files(folder, cell);
    if (!is_resumable(cell, files)) continue;
    auto facts = experiment_in(files.journal);
    if (facts.empty()) starts.push_back({{cell}, true});
    if (facts.empty()) continue;
    begun[facts["id"]].emplace(facts["contender"], cell);
    contenders[facts["id"]] = facts["contenders"];
  }
  for (const auto& [id, names] : contenders)
    if (CellJob job = contenders_in(folder, names, begun[id]); !job.empty())
      starts.push_back({std::move(job), true});
  CellJob others = cells;
  for (const CellStart& start : starts)
    for (const GridCell& resumed : start.cells)
      std::erase_if(others, [&](const GridCell& cell) { return cell.name == resumed.name; });
  if (!others.empty()) starts.push_back({others});
  return starts;
}

// --- failures and states -------------------------------------------------------------------------

namespace {

constexpr std::array<const char*, 7> kStateTexts = {"missing", "running",       "partial", "done",
                                                    "failed",  "out of memory", "not run"};

template <typename Value>
Value value_or(const json& failure, const char* key, Value otherwise) {
  try {
    return failure.value(key, otherwise);
  } catch (const json::exception&) {
    return otherwise;
  }
}

int integer_or(const json& failure, const char* key, int otherwise) {
  try {
    return whole_number<int>(failure.value(key, json(otherwise)));
  } catch (const Error&) {
    return otherwise;
  }
}

}  // namespace

void record_failure(const CellFiles& files, const GridCell& cell, const CellFailure& failure) {
  const json record = {{"cell", cell.name},
                       {"kind", state_text(failure.kind)},
                       {"exit_code", failure.result.exit_code},
                       {"signal", failure.result.signal},
                       {"message", failure.message},
                       {"log", files.log.filename().string()},
                       {"time", utc_now()},
                       {"duration_s", failure.duration_s}};
  // A log need not be UTF-8.
  write_file_atomically(files.failure,
                        record.dump(2, ' ', false, json::error_handler_t::replace) + '\n');
}

std::optional<CellFailure> recorded_failure(const CellFiles& files) {
  if (!std::filesystem::exists(files.failure)) return std::nullopt;
  const json record = parse_json(read_text_file(files.failure));
  CellFailure failure;
  if (!record.is_object()) return failure;
  for (const CellState kind : {CellState::kOutOfMemory, CellState::kNotRun})
    if (record.value("kind", json()) == state_text(kind)) failure.kind = kind;
  failure.result = {integer_or(record, "exit_code", -1), integer_or(record, "signal", 0)};
  failure.message = value_or(record, "message", std::string());
  failure.duration_s = value_or(record, "duration_s", 0.0);
  return failure;
}

CellState cell_state(const CellFiles& files) {
  if (is_running(files)) return CellState::kRunning;
  if (const auto failure = recorded_failure(files)) return failure->kind;
  if (is_complete(files)) return CellState::kDone;
  return fs::exists(files.journal) ? CellState::kPartial : CellState::kMissing;
}

bool is_complete(const CellFiles& files) {
  return fs::exists(files.run) && (!fs::exists(files.journal) || is_published(files.run));
}

bool is_settled(CellState state) {
  return state == CellState::kDone || state == CellState::kOutOfMemory;
}

std::string state_text(CellState state) {
  return kStateTexts.at(static_cast<std::size_t>(state));
}

// --- locks ---------------------------------------------------------------------------------------

namespace {

std::string who_we_are() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("host {}, process {}\n", host.data(), ::getpid());
}

// False if the file was removed, by the one who had it, after it was opened.
bool still_named(const UniqueFd& file, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// A lock of the open file, not of the process: what we start shares it.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Without O_CLOEXEC: mpirun and srun inherit the lock, so a run that outlives a killed sweep keeps
// it.
UniqueFd opened_file(const fs::path& file, mode_t mode) {
  UniqueFd lock(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode));
  if (lock) return lock;
  throw Error(
      ExitCode::kCannotCreate, fmt::format("{}: {}", file.string(), errno_text()),
      errno == EACCES ? "if no sweep of its owner runs: rm " + shell_quoted(file.string()) : "");
}

// A lock file that those alone can read who may write it: a reader could lock it, too.
UniqueFd opened_lock(const fs::path& file) {
  constexpr mode_t kWritable = S_IWGRP | S_IWOTH;
  UniqueFd lock = opened_file(file, S_IRUSR | S_IWUSR | kWritable);
  struct stat made {};
  if (::fstat(lock.get(), &made) == 0 && made.st_uid == ::geteuid()) {
    const mode_t writable = made.st_mode & kWritable;
    ::fchmod(lock.get(), S_IRUSR | S_IWUSR | writable | (writable << 1));
  }
  return lock;
}

[[noreturn]] void refuse_lock(const fs::path& file) {
  throw Error(ExitCode::kCannotCreate,
              fmt::format("cannot lock {}: {}", file.string(), errno_text()));
}

UniqueFd locked_cell(const CellFiles& files) {
  const fs::path& path = files.running;
  while (true) {
    UniqueFd file = opened_file(path, 0666);
    struct flock lock = whole_file();
    if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES) refuse_lock(path);
      if (is_running(files))
        throw Error(
            ExitCode::kStoppedEarly,
            fmt::format("{}: another process runs this cell: {}", path.string(), runner_of(files)),
            "the same command, when it has ended");
      ::unlink(path.c_str());  // somebody who may only read it holds a lock
      continue;
    }
    if (still_named(file, path)) return file;
  }
}

}  // namespace

CellLock::CellLock(const CellFiles& files) : path_(files.running), lock_(locked_cell(files)) {
  const std::string text = who_we_are();
  if (::ftruncate(lock_.get(), 0) == 0)
    write_all(lock_.get(), std::as_bytes(std::span(text)), path_);
}

CellLock::~CellLock() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

std::string runner_of(const CellFiles& files) {
  try {
    const std::string text = read_text_file(files.running);
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";  // it has just ended
  }
}

bool is_running(const CellFiles& files) {
  const UniqueFd file(::open(files.running.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct flock lock = whole_file();
  if (!file) return errno == EACCES;  // of another user, who removes it at the end
  // A lock that whoever runs the cell does not take is a mere reader's.
  return ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

// --- progress ------------------------------------------------------------------------------------

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The run file, or the journal of a run that has not ended.
fs::path record_of(const CellFiles& files) {
  return fs::exists(files.journal) ? files.journal : files.run;
}

std::int64_t images_of(const RunReader& run) {
  for (const auto& entry : run.info().provenance)
    if (entry.name == "train_images") return parse_integer(entry.value);
  return 0;
}

// How many of an experiment's contenders are cells: the control is none.
std::int64_t cells_among(const std::string& contenders) {
  const auto names = split_list(contenders, ',');
  return std::ranges::count_if(
      names, [](const std::string& name) { return !name.ends_with(kControlEnding); });
}

// Fills in what the record says; returns the images of its training set, 0 if it does not say.
std::int64_t read_record(const fs::path& file, CellProgress& progress) {
  try {
    const std::unique_ptr<RunReader> run = open_run(file);
    for (const NamedText& fact : run->info().experiment)
      if (fact.name == "contenders") progress.shared_by = cells_among(fact.value);
    const std::size_t rows = run->iterations();
    progress.iterations = static_cast<std::int64_t>(rows);
    if (rows > 0)
      progress.time_s =
          run->begin(rows - 1, 1).at(0, 0) + run->time(Phase::kIteration, rows - 1, 1).at(0, 0);
    return images_of(*run);
  } catch (const Error& error) {
    // A journal whose first record is being written is no news.
    if (progress.message.empty()) progress.message = first_line(error.what());
    return 0;
  }
}

std::string message_of(const GridCell& cell, const CellFiles& files, CellState state) {
  if (state == CellState::kRunning) return "by " + runner_of(files);
  if (state == CellState::kPartial && holds_complete_run(files.run))
    return "complete, its run file is still to be made";
  if (state == CellState::kPartial)
    return is_resumable(cell, files) ? "resumes from its checkpoint"
                                     : "no checkpoint: starts again";
  const auto failure = recorded_failure(files);
  return failure ? first_line(failure->message) : "";
}

bool will_run(const CellProgress& cell) {
  return cell.state == CellState::kMissing || cell.state == CellState::kRunning ||
         cell.state == CellState::kPartial;
}

}  // namespace

double CellProgress::share() const {
  if (state == CellState::kDone) return 1;
  if (iterations == 0) return 0;
  return wanted > 0 ? std::min(1.0, static_cast<double>(iterations) / static_cast<double>(wanted))
                    : kUnknown;
}

std::vector<CellProgress> grid_progress(const std::vector<GridCell>& cells,
                                        const fs::path& folder) {
  std::vector<CellProgress> all;
  std::map<std::string, std::int64_t> train_images;  // of each data set
  const auto data_of = [](const GridCell& cell) { return train_options_of(cell).data; };
  for (const auto& cell : cells) {
    const CellFiles files = cell_files(folder, cell);
    CellProgress progress{cell.name, cell_state(files), 0, 0, kUnknown};
    progress.message = message_of(cell, files, progress.state);
    if (fs::exists(record_of(files))) {
      std::int64_t& images = train_images[data_of(cell)];
      images = std::max(images, read_record(record_of(files), progress));
    }
    all.push_back(std::move(progress));
  }
  for (std::size_t i = 0; i < cells.size(); ++i)
    all[i].wanted = iterations_wanted(cells[i], train_images[data_of(cells[i])]);
  return all;
}

double seconds_left(const std::vector<CellProgress>& cells) {
  double whole_s = 0, left = 0;
  std::size_t begun = 0;
  for (const auto& cell : cells) {
    const bool counts = cell.state == CellState::kDone || will_run(cell);
    if (counts && cell.time_s > 0 && cell.share() > 0) {
      whole_s += cell.time_s / cell.share() / static_cast<double>(cell.shared_by);
      ++begun;
    }
    if (will_run(cell)) left += 1 - (std::isnan(cell.share()) ? 0 : cell.share());
  }
  return begun == 0 ? kUnknown : whole_s / static_cast<double>(begun) * left;
}

std::int64_t iterations_wanted(const GridCell& cell, std::int64_t train_images) {
  const TrainOptions options = train_options_of(cell);
  // The size of the set is not known: nearly every job file with --iterations means just those.
  if (train_images == 0) return options.iterations;
  // The run will be refused.
  if (cell.ranks > train_images) return 0;
  const auto lengths = epoch_lengths(options, train_images, cell.ranks);
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

namespace {

std::string iterations_text(const CellProgress& cell) {
  if (cell.iterations == 0 && cell.wanted == 0) return "-";
  return fmt::format("{} of {}", cell.iterations,
                     cell.wanted > 0 ? std::to_string(cell.wanted) : "?");
}

std::string totals(const std::vector<CellProgress>& cells) {
  std::map<CellState, std::size_t> count;
  for (const auto& cell : cells)
    ++count[cell.state];
  std::string text = fmt::format("{} of {} cells done", count[CellState::kDone], cells.size());
  for (const auto& [state, number] : count)
    if (state != CellState::kDone && number > 0)
      text += fmt::format(", {} {}", number, state_text(state));
  return text;
}

// The time left for the cells that are to run: those that failed for good, or do not fit, will not.
std::string pace(const std::vector<CellProgress>& cells) {
  const double left_s = seconds_left(cells);
  if (std::isnan(left_s)) return "time left: unknown before the first iteration";
  if (left_s == 0) return "nothing is left to run";
  return fmt::format("{}, at the mean rate of the cells so far; without starts and evaluations",
                     time_left_text(left_s));
}

}  // namespace

std::string time_left_text(double seconds) {
  if (seconds < 90) return fmt::format("about {} s left", std::llround(seconds));
  if (seconds < 90 * 60) return fmt::format("about {} min left", std::llround(seconds / 60));
  return fmt::format("about {} h left", std::llround(seconds / 3600));
}

Table status_table(const std::string& name, const std::vector<CellProgress>& cells,
                   const fs::path& results) {
  Table table{"status",
              "Grid " + name,
              {totals(cells), pace(cells),
               "time: from the start of a cell's run to its last recorded iteration",
               "results: " + results.string()},
              {{"number", "#"},
               {"cell", "cell", true},
               {"state", "state", true},
               {"iterations", "iterations"},
               {"time", "time"},
               {"message", "", true}},
              {}};
  double number = 0;
  for (const auto& cell : cells)
    table.add({Cell::count(++number), cell.cell, state_text(cell.state), iterations_text(cell),
               std::isnan(cell.time_s) ? "-" : format_duration(cell.time_s), cell.message});
  return table;
}

DurableProgress durable_progress(const fs::path& folder) {
  DurableProgress progress;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    fs::path run = entry.path();
    if (run.extension() == ".h5" && !fs::exists(run.string() + ".journal")) ++progress.cells;
    if (run.extension() != ".journal" || is_set_aside(run)) continue;
    try {
      const auto checkpoints = checkpoints_in(checkpoint_folder(run.replace_extension()));
      if (!checkpoints.empty()) progress.iterations += checkpoints.front().iteration;
    } catch (const Error&) {
      continue;  // An unreadable folder holds no progress.
    }
  }
  return progress;
}

// --- the folder ----------------------------------------------------------------------------------

namespace {

UniqueFd locked_folder(const fs::path& file, int kind) {
  UniqueFd lock = opened_lock(file);
  if (::flock(lock.get(), kind | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) refuse_lock(file);
  throw Error(ExitCode::kStoppedEarly,
              fmt::format("{}: another sweep, or a run that it started, uses this folder",
                          file.parent_path().string()),
              "the same command, when it has ended, or another folder with --results");
}

}  // namespace

void set_aside_leftovers(const fs::path& folder, const GridCell& cell) {
  const CellFiles files = cell_files(folder, cell);
  // The journal last: a run file without one would be complete.
  const std::pair<fs::path, std::string> leftovers[] = {
      {files.run, ".run"}, {files.checkpoints, ".checkpoints"}, {files.journal, ".journal"}};
  const auto any = [&](auto exists) {
    return std::any_of(std::begin(leftovers), std::end(leftovers), exists);
  };
  if (!any([](const auto& one) { return fs::exists(one.first); })) return;
  std::string base;
  for (int number = 1;; ++number) {
    base = (folder / fmt::format("{}{}{}", cell.name, kSetAside, number)).string();
    if (!any([&](const auto& one) { return fs::exists(base + one.second); })) break;
  }
  remove_lock_of_gone(files.journal);
  for (const auto& [path, ending] : leftovers)
    if (fs::exists(path)) fs::rename(path, base + ending);
}

void make_folder(const fs::path& folder) {
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder, ignored))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot make the folder {}: {}", folder.string(),
                            error ? error.message() : "a file of that name exists"),
                "give another folder with --results");
}

ResultsFolder::ResultsFolder(const Job& job, const Grid& grid, FolderUse use) : path_(job.results) {
  make_folder(path_);
  lock_ = locked_folder(path_ / "sweep.lock", use == FolderUse::kWholeGrid ? LOCK_EX : LOCK_SH);
  // Sweeps of single cells share the first lock; each adds its cells to those it read.
  writes_ = opened_lock(path_ / "grid.lock");
  if (::flock(writes_.get(), LOCK_EX) != 0) refuse_lock(path_ / "grid.lock");
  there_ = grid_in_folder(job, grid);
  there_.require_same(path_);
  if (use != FolderUse::kSubmission) record(job);
}

void ResultsFolder::record(const Job& job) {
  if (!writes_) return;
  record_grid(job, there_);
  writes_ = UniqueFd();
}

}  // namespace gradsync::sweep
