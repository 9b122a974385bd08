#include "sweep/submit_grid.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "support/error.h"
#include "support/process.h"
#include "sweep/array_jobs.h"
#include "sweep/cell_state.h"
#include "sweep/launcher.h"
#include "sweep/local_launcher.h"
#include "sweep/results_folder.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Of the checkout we were built in, or where `make install` put the templates.
fs::path home_of_templates() {
  const fs::path installed = program_beside_us("../share/gradsync");
  return fs::exists(installed / "slurm/submit") ? installed : program_beside_us("../..");
}

// slurm/submit of the folder that GRADSYNC_HOME names, else of this installation.
std::string submit_program() {
  const std::string home = variable("GRADSYNC_HOME");
  const fs::path folder = home.empty() ? home_of_templates() : fs::path(home);
  const fs::path program = (folder / "slurm/submit").lexically_normal();
  if (::access(program.c_str(), X_OK) == 0) return program.string();
  throw Error(ExitCode::kEnvironment,
              fmt::format("cannot run {}: {}", program.string(), errno_text()),
              "export GRADSYNC_HOME=FOLDER, a checkout with slurm/ and build/bin, or "
              "PREFIX/share/gradsync of make install");
}

std::string site_value(const std::string& key) {
  const CapturedProcess asked = capture_process({submit_program(), "--value", key});
  if (!asked.result.succeeded())
    throw Error(ExitCode::kUsage, "slurm/site is not right", "see the message above");
  return asked.output.substr(0, asked.output.find('\n'));
}

std::vector<GridCell> missing_cells(const Job& job, const Grid& grid, const std::string& chosen) {
  std::vector<GridCell> cells = chosen_cells(grid, chosen);
  std::erase_if(cells, [&](const GridCell& cell) {
    return is_settled(cell_state(cell_files(job.results, cell)));
  });
  return cells;
}

// After the end, good or bad, of the jobs before.
std::vector<std::string> first_words(const std::string& jobs_before) {
  std::vector<std::string> words = {submit_program(), "--parsable"};
  if (!jobs_before.empty()) words.push_back("--dependency=afterany:" + jobs_before);
  return words;
}

std::string submitted(const ArrayJob& array, const std::vector<std::string>& before) {
  std::vector<std::string> command = first_words(fmt::format("{}", fmt::join(before, ":")));
  append(command, array.words);
  const CapturedProcess sbatch = capture_process(command);
  // "4711", or "4711;cluster".
  if (sbatch.result.succeeded()) return sbatch.output.substr(0, sbatch.output.find_first_of(";\n"));
  throw Error(ExitCode::kEnvironment,
              fmt::format("sbatch refused {}: {}; submitted before it: {}", array.what,
                          sbatch.result.text(),
                          before.empty() ? "none" : fmt::format("{}", fmt::join(before, " "))),
              "see its message above; options for it: key sbatch-options, or slurm/site");
}

void submit(const std::vector<ArrayJob>& arrays, std::ostream& out) {
  std::vector<std::string> jobs;
  for (const auto& array : arrays) {
    jobs.push_back(submitted(array, jobs));
    out << fmt::format("job {}: {}\n", jobs.back(), array.what) << std::flush;
  }
}

// Lines for a shell, in which $job1 is the number that Slurm gives to the first.
void print(const std::vector<ArrayJob>& arrays, const Job& job, std::ostream& out) {
  out << shell_text({{}, {"mkdir", "-p", log_folder(job).string()}}) << '\n';
  std::string before;
  for (std::size_t i = 1; i <= arrays.size(); ++i) {
    const std::string after = before.empty() ? "" : " --dependency=afterany:" + before;
    out << fmt::format("job{}=$({}{} {})\n", i, shell_text({{}, first_words("")}), after,
                       shell_text({{}, arrays[i - 1].words}));
    before += fmt::format("{}$job{}", before.empty() ? "" : ":", i);
  }
}

}  // namespace

void take_site_data() {
  const std::string data = site_value("data");
  if (!data.empty() && variable("GRADSYNC_DATA").empty())
    setenv("GRADSYNC_DATA", data.c_str(), /*overwrite=*/1);
}

int submit_grid(const Job& job, const Grid& grid, const SweepCommand& command, std::ostream& out) {
  const auto cells = missing_cells(job, grid, command.options.cell);
  if (cells.empty()) return std::cerr << "all cells are there already\n", 0;
  const auto arrays = array_jobs(job, cells, site_value("array-tasks"), command);
  if (command.options.dry_run) return print(arrays, job, out), 0;
  const ResultsFolder folder(job, grid, FolderUse::kOneCell);
  make_folder(log_folder(job));
  submit(arrays, out);
  return 0;
}

}  // namespace gradsync::sweep
