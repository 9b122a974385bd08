// SPDX-License-Identifier: BSD-3-Clause
#include "sweep/runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "options/options.h"
#include "record/recorder.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;

// Words of slurmstepd and srun about memory, by version.
constexpr std::array<const char*, 4> kSlurmsWords = {"oom-kill", "oom_kill", "Out Of Memory",
                                                     "OUT_OF_MEMORY"};

// Exit code of srun for a step with a rank that was ended for want of memory.
constexpr int kSrunOutOfMemory = 253;

// The message of Intel MPI, which ends with 255 whatever the signal.
constexpr const char* kKilledByIntel = "KILLED BY SIGNAL: 9 ";

// The last "program: …" that is no warning, with its fix.
std::string own_error(const std::vector<std::string>& lines, const std::string& program) {
  const std::string begin = program + ": ";
  std::string error;
  bool inside = false;
  for (const auto& line : lines) {
    const bool begins = line.starts_with(begin) && !line.starts_with(begin + "warning: ");
    const bool continues = inside && line.starts_with("fix: ");
    if (begins) error = line.substr(begin.size());
    if (continues) error += '\n' + line;
    inside = begins || continues;
  }
  return error;
}

// A rank that was killed says nothing: its launcher does, "srun: error: n2: task 1: Killed" or
// "mpirun noticed that process rank 1 with PID 7 on node n2 exited on signal 9 (Killed).", before
// it reports all the ranks that it ended itself. Behind: Intel MPI, MPICH.
bool tells_of_a_rank(const std::string& line) {
  const auto holds = [&](const char* words) { return line.find(words) != std::string::npos; };
  return (line.starts_with("srun: error: ") && holds(": task")) ||
         holds("noticed that process rank") || holds("KILLED BY SIGNAL: ") ||
         holds("TERMINATED WITH THE EXIT STRING: ");
}

// The last error that the trainer printed, else the first line in which srun or mpirun reports a
// rank that ended, else the last three lines that say anything.
std::string last_error(const std::string& log) {
  std::vector<std::string> lines = split_list(log, '\n');
  std::erase(lines, "");
  const std::string own = own_error(lines, "gradsync-train");
  if (!own.empty()) return own;
  const auto lost = std::ranges::find_if(lines, tells_of_a_rank);
  if (lost != lines.end()) return *lost;
  const std::size_t shown = std::min<std::size_t>(3, lines.size());
  return fmt::format(
      "{}", fmt::join(lines.end() - static_cast<std::ptrdiff_t>(shown), lines.end(), "\n"));
}

bool tells_of_memory(const std::string& log) {
  return std::ranges::any_of(
      kSlurmsWords, [&](const char* words) { return log.find(words) != std::string::npos; });
}

// Whether the run was killed from outside: by signal 9, or with what launchers make of it, exit
// code 137 (9 of MPICH's, and of Open MPI's where the connection to the rank ended before the rank;
// 253 of srun's and 255 of Intel's with their messages in the log).
bool was_killed(const ProcessResult& result, const std::string& log) {
  return result.signal == SIGKILL || result.exit_code == 128 + SIGKILL ||
         result.exit_code == SIGKILL ||
         (result.exit_code == kSrunOutOfMemory && tells_of_memory(log)) ||
         (result.exit_code == 255 && log.find(kKilledByIntel) != std::string::npos);
}

std::string message_of(const ProcessResult& result, const std::string& log) {
  const std::string error = last_error(log);
  if (was_killed(result, log))
    return fmt::format(
        "killed from outside ({}): the host's memory may have run out, or a user or Slurm ended "
        "it\n{}",
        result.text(), error);
  if (!error.empty()) return error;
  return result.succeeded() ? "it ended with exit code 0 but wrote no run file"
                            : "it printed nothing";
}

}  // namespace

CellFailure failure_of(const ProcessResult& result, std::int64_t kernel_counted,
                       const std::string& log) {
  CellFailure failure{CellState::kFailed, result, message_of(result, log)};
  const bool for_memory = was_killed(result, log) && (kernel_counted > 0 || tells_of_memory(log));
  if (for_memory) failure.message = "ended by the kernel because the host's memory ran out";
  if (for_memory || result.exit_code == static_cast<int>(ExitCode::kOutOfMemory))
    failure.kind = CellState::kOutOfMemory;
  return failure;
}

namespace {

// Processes that the kernel has ended for want of memory since the host started, from /proc/vmstat;
// 0 where it does not say.
std::int64_t kernel_memory_kills() {
  const std::string key = "oom_kill ";
  try {
    for (const auto& line : split_list(read_text_file("/proc/vmstat"), '\n'))
      if (line.starts_with(key)) return parse_integer(line.substr(key.size()));
  } catch (const Error&) {
    // An old kernel, or no /proc.
  }
  return 0;
}

struct CellRun {
  bool succeeded = false, stopped = false;
  CellFailure failure;  ///< its duration is right also for a success
};

// The end of the log of a run, without what earlier runs of the cell left in it.
std::string log_from(const CellFiles& files, std::uintmax_t start) {
  constexpr std::uintmax_t kMost_bytes = std::uintmax_t{1} << 20;
  std::error_code missing;
  const std::uintmax_t size = fs::file_size(files.log, missing);
  if (missing || size <= start) return {};
  std::string log(std::min(size - start, kMost_bytes), '\0');
  std::ifstream file(files.log, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(size - log.size()));
  file.read(log.data(), static_cast<std::streamsize>(log.size()));
  log.resize(static_cast<std::size_t>(file.gcount()));
  return log;
}

// A run that a request to stop reached too early or too late for a checkpoint ends in other ways.
bool was_stopped(const ProcessResult& result, bool requested) {
  return result.exit_code == static_cast<int>(ExitCode::kStoppedEarly) ||
         (requested && !result.succeeded());
}

std::string ladder_of(const GridCell& cell) {
  std::string key = fmt::format("ranks={}", cell.ranks);
  for (const auto& [name, value] : cell.options)
    if (name != "batch-per-rank" && name != "batch-global")
      key += fmt::format("\n{}={}", name, value);
  return key;
}

// The ladders of a grid: cells that differ in the batch alone (repeats included). Where one ran out
// of memory, as large or larger ones would too, and need not be tried.
class BatchLadders {
 public:
  // Begins with the ladders whose end earlier sweeps of the folder found.
  BatchLadders(const std::vector<GridCell>& cells, const fs::path& folder) {
    for (const auto& cell : cells) {
      const auto failure = recorded_failure(cell_files(folder, cell));
      if (failure && failure->kind == CellState::kOutOfMemory) end_at(cell);
    }
  }

  void end_at(const GridCell& cell) {
    const std::int64_t batch = train_options_of(cell).batch_per_rank;
    const auto [entry, is_new] = smallest_.emplace(ladder_of(cell), batch);
    if (!is_new) entry->second = std::min(entry->second, batch);
  }

  // The smallest batch per rank that ended the cell's ladder, if the cell's is as large or larger.
  std::optional<std::int64_t> ended_at(const GridCell& cell) const {
    const auto entry = smallest_.find(ladder_of(cell));
    if (entry == smallest_.end() || train_options_of(cell).batch_per_rank < entry->second)
      return std::nullopt;
    return entry->second;
  }

 private:
  std::map<std::string, std::int64_t> smallest_;
};

// A crash between the run file and the end of its journal leaves both.
void remove_leftover_journal(const CellFiles& files) {
  if (!fs::exists(files.journal)) return;
  try {
    finish_interrupted(files.run);
  } catch (const Error&) {
    // The run file is complete; a journal that stays is only in the way.
  }
}

// One sweep over the cells; what it knows of the time they take is from its own runs.
class Runner {
 public:
  Runner(const std::vector<GridCell>& grid, const fs::path& folder, Launcher& launcher,
         const StopRequests& stop, std::ostream& progress)
      : grid_(grid),
        folder_(folder),
        launcher_(launcher),
        ladders_(grid, folder),
        stop_(stop),
        progress_(progress) {}

  GridOutcome run(const std::vector<GridCell>& cells) {
    publish_ended(folder_, cells, grid_);
    std::vector<GridCell> waiting;
    for (const auto& cell : cells)
      if (!is_there(cell)) waiting.push_back(cell);
    all_ = cells.size();
    left_ = waiting.size();
    if (left_ < all_)
      progress_ << fmt::format("{} of {} cells are there already\n", all_ - left_, all_);
    for (const CellJob& job : jobs_of(waiting))
      run_job(job);
    return outcome_;
  }

 private:
  bool is_there(const GridCell& cell) {
    const CellFiles files = cell_files(folder_, cell);
    const CellState state = cell_state(files);
    if (state == CellState::kDone) {
      remove_leftover_journal(files);
      ++outcome_.already;
    }
    if (state == CellState::kOutOfMemory)
      outcome_.too_large.push_back({cell.name, recorded_failure(files)->message});
    return is_settled(state);
  }

  bool is_stopped() { return outcome_.stopped = outcome_.stopped || stop_() > 0; }

  void run_job(const CellJob& cells) {
    CellJob fit;
    for (const GridCell& cell : cells) {
      const auto batch = ladders_.ended_at(cell);
      if (!batch)
        fit.push_back(cell);
      else if (!is_stopped())
        note_not_run(cell, *batch);
    }
    if (fit.empty()) return;
    for (const CellStart& start : starts_of(folder_, fit))
      if (!is_stopped()) run_start(start);
  }

  void run_start(const CellStart& start) {
    const CellJob& cells = start.cells;
    CellJob apart;
    {
      std::deque<CellLock> locks;
      for (const GridCell& cell : cells)
        locks.emplace_back(cell_files(folder_, cell));
      begin_line(cells);
      const CellRun run = launched(start);
      apart = to_run_apart(cells, run);
      if (apart.empty()) return note(cells, run);
      left_ += apart.size();
      outcome_.done += cells.size() - apart.size();
      progress_ << fmt::format(
          "{} in one job after {}; each in a job of its own\n",
          run.failure.kind == CellState::kOutOfMemory ? "out of memory" : "numbers not finite",
          format_duration(run.failure.duration_s));
    }
    for (const GridCell& cell : apart)
      if (!is_stopped()) run_start({{cell}});
  }

  // Contenders whose job ended for what may be one's own: what does not fit the memory together may
  // fit it alone, and numbers that are not finite would be met again by all.
  CellJob to_run_apart(const CellJob& cells, const CellRun& run) const {
    const bool for_memory = run.failure.kind == CellState::kOutOfMemory,
               for_numbers = run.failure.result.exit_code == static_cast<int>(ExitCode::kNumbers);
    if (cells.size() == 1 || run.succeeded || run.stopped || !(for_memory || for_numbers))
      return {};
    CellJob left = cells;
    std::erase_if(left,
                  [&](const GridCell& cell) { return is_complete(cell_files(folder_, cell)); });
    return left;
  }

  bool can_resume(const CellJob& cells) const {
    return std::ranges::any_of(starts_of(folder_, cells), &CellStart::resumes);
  }

  void begin_line(const CellJob& cells) {
    std::string number = std::to_string(all_ - left_ + 1);
    left_ -= cells.size();
    if (cells.size() > 1) number += fmt::format("-{}", all_ - left_);
    progress_ << fmt::format("[{:>{}}/{}] {} … ", number, std::to_string(all_).size(), all_,
                             name_of(cells))
              << std::flush;
  }

  static std::string name_of(const CellJob& cells) {
    if (cells.size() == 1) return cells.front().name;
    return fmt::format("{} and {} in turn", cells.front().name,
                       count_text(static_cast<std::int64_t>(cells.size()) - 1, "contender"));
  }

  void make_room(const CellJob& cells) {
    for (const GridCell& cell : cells) {
      set_aside_leftovers(folder_, cell);
      set_aside_leftovers(folder_, control_of(cell));
      fs::remove(cell_files(folder_, cell).log);
    }
  }

  CellRun launched(const CellStart& start) {
    const CellFiles files = job_files(folder_, start.cells);
    if (!start.resumes) make_room(start.cells);
    // Or what is left where this start is stopped or killed would be told by why an earlier one
    // failed.
    for (const GridCell& cell : start.cells)
      fs::remove(cell_files(folder_, cell).failure);
    const std::size_t logged = fs::exists(files.log) ? fs::file_size(files.log) : 0;
    const std::int64_t kills = kernel_memory_kills();
    const auto began = std::chrono::steady_clock::now();
    const ProcessResult result = launcher_.launch(start_of(start.cells), files);
    CellRun run;
    run.succeeded =
        result.succeeded() && std::ranges::all_of(start.cells, [&](const GridCell& cell) {
          return fs::exists(cell_files(folder_, cell).run);
        });
    run.stopped = was_stopped(result, stop_() > 0);
    if (!run.succeeded)
      run.failure = failure_of(result, kernel_memory_kills() - kills, log_from(files, logged));
    // Contenders that had come far enough to be resumed did fit: the next sweep resumes them.
    if (run.failure.kind == CellState::kOutOfMemory && start.cells.size() > 1 &&
        can_resume(start.cells))
      run.failure.kind = CellState::kFailed;
    run.failure.duration_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return run;
  }

  void note(const CellJob& cells, const CellRun& run) {
    const std::string took = format_duration(run.failure.duration_s);
    spent_s_ += run.failure.duration_s;
    ran_ += cells.size();
    if (run.stopped && !run.succeeded) {
      outcome_.stopped = true;
      outcome_.stopped_cell = name_of(cells);
      progress_ << "stopped after " << took;
    } else {
      for (const GridCell& cell : cells)
        if (run.succeeded || (cells.size() > 1 && is_complete(cell_files(folder_, cell))))
          ++outcome_.done;
        else
          note_failure(cell, run.failure, job_files(folder_, cells).log);
      progress_ << end_text(run, took, job_files(folder_, cells).log);
    }
    if (left_ > 0 && !outcome_.stopped)
      progress_ << ", "
                << time_left_text(spent_s_ / static_cast<double>(ran_) *
                                  static_cast<double>(left_));
    progress_ << '\n' << std::flush;
  }

  static std::string end_text(const CellRun& run, const std::string& took, const fs::path& log) {
    if (run.succeeded) return took;
    if (run.failure.kind == CellState::kOutOfMemory)
      return fmt::format("out of memory after {}", took);
    return fmt::format("failed after {} with {}, see {}", took, run.failure.result.text(),
                       log.string());
  }

  void note_failure(const GridCell& cell, const CellFailure& failure, const fs::path& log) {
    CellFiles files = cell_files(folder_, cell);
    files.log = log;
    record_failure(files, cell, failure);
    const bool too_large = failure.kind == CellState::kOutOfMemory;
    if (too_large) ladders_.end_at(cell);
    (too_large ? outcome_.too_large : outcome_.failed).push_back({cell.name, failure.message});
  }

  void note_not_run(const GridCell& cell, std::int64_t batch) {
    const CellLock lock(cell_files(folder_, cell));
    begin_line({cell});
    const std::string message = fmt::format("not run: batch {} per rank ran out of memory", batch);
    record_failure(cell_files(folder_, cell), cell, {CellState::kNotRun, {}, message});
    outcome_.too_large.push_back({cell.name, message});
    progress_ << message << '\n' << std::flush;
  }

  const std::vector<GridCell>& grid_;
  fs::path folder_;
  Launcher& launcher_;
  BatchLadders ladders_;
  const StopRequests& stop_;
  std::ostream& progress_;
  GridOutcome outcome_;
  double spent_s_ = 0;
  std::size_t ran_ = 0, all_ = 0, left_ = 0;
};

}  // namespace

void require_room(const std::vector<GridCell>& cells, const fs::path& folder,
                  const Launcher& launcher) {
  for (const auto& cell : cells)
    if (!is_settled(cell_state(cell_files(folder, cell)))) launcher.require_room(cell);
}

GridOutcome run_grid(const std::vector<GridCell>& cells, const std::vector<GridCell>& grid,
                     const fs::path& folder, Launcher& launcher, const StopRequests& stop_requests,
                     std::ostream& progress) {
  return Runner(grid, folder, launcher, stop_requests, progress).run(cells);
}

namespace {

void print_messages(std::ostream& out, const std::vector<GridOutcome::Failed>& cells) {
  for (const auto& cell : cells)
    out << fmt::format("  {}: {}\n", cell.cell,
                       fmt::join(split_list(printable(cell.message), '\n'), "\n    "));
}

}  // namespace

void print_summary(std::ostream& out, const GridOutcome& outcome, std::size_t all) {
  out << fmt::format("{}: {} complete, {} failed", count_text(all, "cell"),
                     outcome.already + outcome.done, outcome.failed.size());
  if (!outcome.too_large.empty())
    out << fmt::format(", {} too large for the memory", outcome.too_large.size());
  out << '\n';
  print_messages(out, outcome.failed);
  print_messages(out, outcome.too_large);
  if (!outcome.stopped_cell.empty())
    out << fmt::format("  {}: stopped, not complete\n", outcome.stopped_cell);
}

void require_complete(const GridOutcome& outcome, std::size_t all, const std::string& command) {
  if (outcome.stopped)
    throw Error(
        ExitCode::kStoppedEarly,
        fmt::format("stopped with {} of {} cells complete", outcome.already + outcome.done, all),
        "continue with: " + command);
  if (!outcome.failed.empty())
    throw Error(ExitCode::kCheckFailed,
                fmt::format("{} of {} cells failed", outcome.failed.size(), all),
                "try them again with: " + command);
}

namespace {

Job requested_job(const SweepCommand& command) {
  const ParsedCommandLine& given = command.given;
  if (given.positional.size() != 1)
    throw Error(ExitCode::kUsage, fmt::format("give one job file, not {}", given.positional.size()),
                "gradsync-sweep --help shows commands that work");
  const SweepOptions& options = command.options;
  Job job = read_job(given.positional.front(), options.set, command.trainer_options);
  if (!options.results.empty()) job.results = options.results;
  if (options.ranks_per_node > 0) job.ranks_per_node = options.ranks_per_node;
  job.launcher_options = option_words(options.launcher_options);
  job.mpirun = options.mpirun;
  job.gpu_request = options.gpu_request;
  return job;
}

// A misspelled variable would otherwise show only in the first cell.
void check_variables() {
  OptionTable known = sweep_option_table();
  for (const auto& spec : train_option_table())
    known.push_back(spec);
  reject_unknown_variables(known);
}

// gradsync-report with the job's options for it; tables and plots go into <results>/tables.
std::vector<std::string> report_command(const Job& job) {
  std::vector<std::string> command = {program_beside_us("gradsync-report").string(),
                                      job.results.string(), "--output",
                                      (job.results / "tables").string()};
  append(command, job.report_options);
  return command;
}

// Runs gradsync-report, whose text is this program's result. Returns 0, or 1 if it failed.
int print_report(const Job& job, bool quiet) {
  require_program(program_beside_us("gradsync-report"));
  std::vector<std::string> command = report_command(job);
  if (quiet) command.emplace_back("--quiet");
  const ProcessResult result = run_process(command);
  if (!result.succeeded()) std::cerr << "gradsync-report ended with " << result.text() << '\n';
  return result.succeeded() ? 0 : 1;
}

}  // namespace

std::vector<GridCell> Plan::cells_to_run() const {
  const BatchLadders ladders(there.grid.cells, job.results);
  std::vector<GridCell> cells = chosen_cells();
  std::erase_if(cells, [&](const GridCell& cell) {
    const CellState state = cell_state(cell_files(job.results, cell));
    return is_settled(state) || (state == CellState::kNotRun && ladders.ended_at(cell));
  });
  return cells;
}

std::vector<GridCell> Plan::chosen_cells() const {
  if (command.options.cell.empty()) return there.grid.cells;
  const std::size_t job_of_it = cell_named(there.grid, command.options.cell).job;
  std::vector<GridCell> cells = there.grid.cells;
  std::erase_if(cells, [&](const GridCell& cell) { return cell.job != job_of_it; });
  return cells;
}

Plan plan_of(const SweepCommand& command) {
  check_variables();
  const Job job = requested_job(command);
  return {command, job, grid_in_folder(job, expand(job))};
}

int run_plan(const Plan& plan, const std::string& command, const StopRequests& requests,
             ProgramOutput& output) {
  const Job& job = plan.job;
  const bool whole = plan.command.options.cell.empty();
  require_program(program_beside_us("gradsync-train"));
  const auto launcher = make_launcher(resolved_launcher(plan.command.options.launcher), job,
                                      plan.there.grid, requests);
  require_room(plan.chosen_cells(), job.results, *launcher);
  // Two tasks of a job array may both find the grid complete, and print its tables.
  const bool alone = whole && !plan.cells_to_run().empty();
  const ResultsFolder folder(job, plan.there.grid,
                             alone ? FolderUse::kWholeGrid : FolderUse::kOneCell);
  // Another sweep may have named cells of its own until this one had the lock.
  const Plan locked{plan.command, job, folder.there()};
  const Grid& grid = locked.there.grid;
  const std::vector<GridCell> cells = locked.chosen_cells();
  const GridOutcome outcome =
      run_grid(cells, grid.cells, folder.path(), *launcher, requests, output.progress());
  print_summary(output.progress(), outcome, cells.size());
  const bool tables = whole && !outcome.stopped && outcome.already + outcome.done > 0;
  const int reported = tables ? print_report(job, output.quiet()) : 0;
  output.add(status_table(job.name, grid_progress(grid.cells, folder.path()), folder.path()));
  output.write_json();
  require_complete(outcome, cells.size(), command);
  return reported;
}

}  // namespace gradsync::sweep
