#include "sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "support/error.h"
#include "support/file.h"
#include "support/parse.h"
#include "sweep/cell_lock.h"
#include "sweep/results_folder.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

struct CellRun {
  bool succeeded = false, stopped = false;
  CellFailure failure;  ///< its duration is right also for a success
};

// A run that a request to stop reached too early or too late for a checkpoint ends in other ways.
bool was_stopped(const ProcessResult& result, bool requested) {
  return result.exit_code == static_cast<int>(ExitCode::kStoppedEarly) ||
         (requested && !result.succeeded());
}

// `logged` bytes of the log are of earlier runs of the cell.
std::string message_of(const CellFiles& files, const ProcessResult& result, std::size_t logged) {
  const std::string log = fs::exists(files.log) ? read_text_file(files.log) : "";
  const std::string error = last_error(log.substr(std::min(logged, log.size())), "gradsync-train");
  if (!error.empty()) return error;
  return result.succeeded() ? "it ended well but wrote no run file" : "it printed nothing";
}

// One sweep over the cells; what it knows of the time they take is from its own runs.
class Runner {
 public:
  Runner(const fs::path& folder, Launcher& launcher, const StopRequests& stop,
         std::ostream& progress)
      : folder_(folder), launcher_(launcher), stop_(stop), progress_(progress) {}

  GridOutcome run(const std::vector<GridCell>& cells) {
    std::vector<const GridCell*> waiting;
    for (const auto& cell : cells)
      if (cell_state(cell_files(folder_, cell)) != CellState::kDone) waiting.push_back(&cell);
    outcome_.already = cells.size() - waiting.size();
    if (outcome_.already > 0)
      progress_ << fmt::format("{} of {} cells are there already\n", outcome_.already,
                               cells.size());
    for (const GridCell* cell : waiting)
      launcher_.require_room(*cell);
    for (std::size_t i = 0; i < waiting.size() && !outcome_.stopped; ++i)
      run_one(*waiting[i], outcome_.already + i + 1, cells.size());
    return outcome_;
  }

 private:
  void run_one(const GridCell& cell, std::size_t number, std::size_t all) {
    if (stop_() > 0) {
      outcome_.stopped = true;
      return;
    }
    const std::size_t digits = std::to_string(all).size();
    progress_ << fmt::format("[{:>{}}/{}] {} … ", number, digits, all, cell.name) << std::flush;
    const CellRun run = launched(cell);
    const double duration_s = run.failure.duration_s;
    spent_s_ += duration_s;
    const std::size_t ran = outcome_.done + outcome_.failed.size() + 1;
    const std::string left = number == all
                                 ? ""
                                 : ", " + time_left_text(spent_s_ / static_cast<double>(ran) *
                                                         static_cast<double>(all - number));
    if (run.succeeded)
      note_success(cell, duration_s, left);
    else if (run.stopped)
      note_stop(cell, duration_s);
    else
      note_failure(cell, run.failure, left);
  }

  CellRun launched(const GridCell& cell) {
    const CellFiles files = cell_files(folder_, cell);
    const CellLock lock(files);
    if (!is_resumable(cell, files)) {
      set_aside_leftovers(folder_, cell);
      fs::remove(files.log);
    }
    const std::size_t logged = fs::exists(files.log) ? fs::file_size(files.log) : 0;
    const auto start = std::chrono::steady_clock::now();
    CellRun run;
    run.failure.result = launcher_.launch(cell, files);
    run.failure.duration_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.succeeded = run.failure.result.succeeded() && fs::exists(files.run);
    run.stopped = was_stopped(run.failure.result, stop_() > 0);
    if (!run.succeeded) run.failure.message = message_of(files, run.failure.result, logged);
    return run;
  }

  void note_success(const GridCell& cell, double duration_s, const std::string& left) {
    fs::remove(cell_files(folder_, cell).failure);
    ++outcome_.done;
    progress_ << format_duration(duration_s) << left << '\n' << std::flush;
  }

  void note_stop(const GridCell& cell, double duration_s) {
    outcome_.stopped = true;
    outcome_.stopped_cell = cell.name;
    progress_ << fmt::format("stopped after {}\n", format_duration(duration_s)) << std::flush;
  }

  void note_failure(const GridCell& cell, const CellFailure& failure, const std::string& left) {
    const CellFiles files = cell_files(folder_, cell);
    record_failure(files, cell, failure);
    outcome_.failed.push_back({cell.name, failure.message});
    progress_ << fmt::format("failed after {} with {}, see {}{}\n",
                             format_duration(failure.duration_s), failure.result.text(),
                             files.log.string(), left)
              << std::flush;
  }

  fs::path folder_;
  Launcher& launcher_;
  const StopRequests& stop_;
  std::ostream& progress_;
  GridOutcome outcome_;
  double spent_s_ = 0;
};

}  // namespace

GridOutcome run_grid(const std::vector<GridCell>& cells, const fs::path& folder, Launcher& launcher,
                     const StopRequests& stop_requests, std::ostream& progress) {
  return Runner(folder, launcher, stop_requests, progress).run(cells);
}

std::string time_left_text(double seconds) {
  if (seconds < 90) return fmt::format("about {} s left", std::llround(seconds));
  if (seconds < 90 * 60) return fmt::format("about {} min left", std::llround(seconds / 60));
  return fmt::format("about {} h left", std::llround(seconds / 3600));
}

}  // namespace gradsync
