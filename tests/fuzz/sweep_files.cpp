// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>

#include "base/cli/options.h"
#include "base/cli/slurm_site.h"
#include "base/error.h"
#include "fuzz/targets.h"
#include "options/options.h"
#include "serial/clean_environment.h"
#include "sweep/cell_store.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"
#include "sweep/runner.h"

namespace gradsync::fuzz {

namespace {

/// A grid may have 100,000 cells, which takes seconds by right.
bool is_small(const sweep::Job& job) {
  std::int64_t cells = job.repeats;
  for (const sweep::Axis& axis : job.axes)
    if ((cells *= static_cast<std::int64_t>(axis.values.size())) > 200) return false;
  return cells <= 200;
}

}  // namespace

void job_file(Input input) {
  const InputFile file(text_of(input));
  const sweep::Job job = sweep::read_job(file.path());
  if (is_small(job)) sweep::expand(job);
}

/// The input as the record of a failed cell, as the log of a cell and as the grid of a folder.
void sweep_records(Input input) {
  static const Folder folder;
  const std::string_view text = text_of(input);
  const sweep::GridCell cell{"cell", 1, 1, {}};
  folder.write("cell.failed.json", text);
  folder.write("grid.json", text);
  const auto failure = sweep::recorded_failure(sweep::cell_files(folder.path(), cell));
  sweep::failure_of(failure ? failure->result : ProcessResult{}, 0, std::string(text));
  sweep::Job job = sweep::make_job({{"ranks", "1", "job:1"}}, {}, "job");
  job.results = folder.path();
  for (const auto& known : sweep::grid_in_folder(job, sweep::expand(job)).cells)
    if (sweep::cell_files(folder.path(), known).run.parent_path() != folder.path())
      throw std::logic_error("a cell of grid.json lies outside of its folder");
}

/// The site file of the programs, with and without keys for jobs of Slurm.
void site_file(Input input) {
  const CleanEnvironment environment;
  const InputFile file(text_of(input));
  setenv("GRADSYNC_SITE", file.path().c_str(), 1);
  const char* const arguments[] = {"program", nullptr};
  train_options(resolve_options(train_option_table(), 1, arguments, {}, Foreign::kReject).values);
  resolve_options(sweep::sweep_option_table(), 1, arguments, "JOB");
  read_slurm_site("/nonexistent", file.path());
}

}  // namespace gradsync::fuzz
