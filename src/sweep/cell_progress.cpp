#include "sweep/cell_progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/epoch_plan.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "sweep/cell_lock.h"
#include "sweep/cell_record.h"
#include "sweep/runner.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;

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

// Fills in what the record says; returns the images of its training set, 0 if it does not say.
std::int64_t read_record(const fs::path& file, CellProgress& progress) {
  try {
    const std::unique_ptr<RunReader> run = open_run(file);
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
  std::int64_t train_images = 0;
  for (const auto& cell : cells) {
    const CellFiles files = cell_files(folder, cell);
    CellProgress progress{cell.name, cell_state(files), 0, 0, kUnknown, {}};
    progress.message = message_of(cell, files, progress.state);
    if (fs::exists(record_of(files)))
      train_images = std::max(train_images, read_record(record_of(files), progress));
    all.push_back(std::move(progress));
  }
  for (std::size_t i = 0; i < cells.size(); ++i)
    all[i].wanted = iterations_wanted(cells[i], train_images);
  return all;
}

double seconds_left(const std::vector<CellProgress>& cells) {
  double whole_s = 0, left = 0;
  std::size_t begun = 0;
  for (const auto& cell : cells) {
    const bool counts = cell.state == CellState::kDone || will_run(cell);
    if (counts && cell.time_s > 0 && cell.share() > 0) {
      whole_s += cell.time_s / cell.share();
      ++begun;
    }
    if (will_run(cell)) left += 1 - (std::isnan(cell.share()) ? 0 : cell.share());
  }
  return begun == 0 ? kUnknown : whole_s / static_cast<double>(begun) * left;
}

std::int64_t iterations_wanted(const GridCell& cell, std::int64_t train_images) {
  const TrainOptions options = train_options_of(cell);
  // Without the set's size: of what nearly every job file with --iterations means.
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

// Of the cells that are to run: those that failed for good, or do not fit, are no progress to come.
std::string pace(const std::vector<CellProgress>& cells) {
  const double left_s = seconds_left(cells);
  if (std::isnan(left_s)) return "time left: unknown before the first iteration";
  if (left_s == 0) return "nothing is left to run";
  return fmt::format("{}, at the mean rate of the cells so far; without starts and evaluations",
                     time_left_text(left_s));
}

}  // namespace

Table status_table(const std::string& name, const std::vector<CellProgress>& cells) {
  Table table{"status",
              "Grid " + name,
              {totals(cells), pace(cells),
               "time: from the start of a cell's run to its last recorded iteration"},
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

}  // namespace gradsync::sweep
