#include "sweep/runner.h"

#include <chrono>
#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "support/error.h"
#include "support/file.h"
#include "support/parse.h"
#include "sweep/results_folder.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

struct CellRun {
  bool succeeded = false;
  CellFailure failure;  ///< its duration is right also for a success
};

std::string message_of(const CellFiles& files, const ProcessResult& result, bool stopped) {
  if (stopped) return "stopped by a signal to the sweep";
  const std::string error =
      fs::exists(files.log) ? last_error(read_text_file(files.log), "gradsync-train") : "";
  if (!error.empty()) return error;
  return result.succeeded() ? "it ended well but wrote no run file" : "it printed nothing";
}

// One sweep over the cells; what it knows of the time they take is from its own runs.
class Runner {
 public:
  Runner(const fs::path& folder, Launcher& launcher, const StopRequested& stop,
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
    for (std::size_t i = 0; i < waiting.size() && !outcome_.stopped; ++i)
      run_one(*waiting[i], outcome_.already + i + 1, cells.size());
    return outcome_;
  }

 private:
  void run_one(const GridCell& cell, std::size_t number, std::size_t all) {
    if (stop_()) {
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
    else
      note_failure(cell, run.failure, left);
  }

  CellRun launched(const GridCell& cell) {
    const CellFiles files = cell_files(folder_, cell);
    set_aside_leftovers(folder_, cell);
    const auto start = std::chrono::steady_clock::now();
    CellRun run;
    run.failure.result = launcher_.launch(cell, files);
    run.failure.duration_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.succeeded = run.failure.result.succeeded() && fs::exists(files.run);
    if (!run.succeeded) run.failure.message = message_of(files, run.failure.result, stop_());
    return run;
  }

  void note_success(const GridCell& cell, double duration_s, const std::string& left) {
    fs::remove(cell_files(folder_, cell).failure);
    ++outcome_.done;
    progress_ << format_duration(duration_s) << left << '\n' << std::flush;
  }

  void note_failure(const GridCell& cell, const CellFailure& failure, const std::string& left) {
    const CellFiles files = cell_files(folder_, cell);
    record_failure(files, cell, failure);
    outcome_.stopped = stop_();
    if (outcome_.stopped) {
      progress_ << fmt::format("stopped after {}\n", format_duration(failure.duration_s))
                << std::flush;
      return;
    }
    outcome_.failed.push_back({cell.name, failure.message});
    progress_ << fmt::format("failed after {} with {}, see {}{}\n",
                             format_duration(failure.duration_s), failure.result.text(),
                             files.log.string(), left)
              << std::flush;
  }

  fs::path folder_;
  Launcher& launcher_;
  const StopRequested& stop_;
  std::ostream& progress_;
  GridOutcome outcome_;
  double spent_s_ = 0;
};

}  // namespace

GridOutcome run_grid(const std::vector<GridCell>& cells, const fs::path& folder, Launcher& launcher,
                     const StopRequested& stop_requested, std::ostream& progress) {
  return Runner(folder, launcher, stop_requested, progress).run(cells);
}

std::string time_left_text(double seconds) {
  if (seconds < 90) return fmt::format("about {} s left", std::llround(seconds));
  if (seconds < 90 * 60) return fmt::format("about {} min left", std::llround(seconds / 60));
  return fmt::format("about {} h left", std::llround(seconds / 3600));
}

}  // namespace gradsync
