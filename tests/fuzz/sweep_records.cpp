#include "fuzz/targets.h"
#include "support/error.h"
#include "sweep/cell_record.h"
#include "sweep/results_folder.h"

namespace gradsync::fuzz {

/// The input as the record of a failed cell, as the log of a cell and as the grid of a folder.
void sweep_records(Input input) {
  static const Folder folder;
  const std::string_view text = text_of(input);
  const sweep::GridCell cell{"cell", 1, 1, {}};
  folder.write("cell.failed.json", text);
  folder.write("grid.json", text);
  if (const auto failure = sweep::recorded_failure(sweep::cell_files(folder.path(), cell)))
    sweep::was_killed(failure->result, failure->message);
  sweep::last_error(std::string(text), "gradsync-train");
  sweep::Job job = sweep::make_job({{"ranks", "1", "job:1"}}, {}, "job");
  job.results = folder.path();
  sweep::grid_in_folder(job, sweep::expand(job));
}

}  // namespace gradsync::fuzz
