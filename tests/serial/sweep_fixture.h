// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/parse.h"
#include "clean_environment.h"
#include "expect_error.h"
#include "sweep/cell_store.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"
#include "sweep/runner.h"
#include "test_folder.h"

namespace gradsync::sweep {

using Names = std::vector<std::string>;

inline void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

inline Job job_of(const std::string& text, const std::vector<KeyValue>& overrides = {}) {
  return make_job(parse_key_values(text, "test.cfg"), overrides, "test");
}

inline Names names_of(const Grid& grid) {
  Names names;
  for (const auto& cell : grid.cells)
    names.push_back(cell.name);
  return names;
}

inline std::string option_of(const GridCell& cell, const std::string& key) {
  for (const auto& [name, value] : cell.options)
    if (name == key) return value;
  return "";
}

inline bool refused(const std::string& job, const std::string& part) {
  return contains(refusal([&] { expand(job_of(job)); }), part);
}

inline Job job_in(const TestFolder& folder, const std::string& text) {
  Job job = job_of(text);
  job.results = folder / "runs";
  return job;
}

// A launcher that writes given files instead of running anything.
class FakeLauncher : public Launcher {
 public:
  struct Script {
    ProcessResult result{0, 0};
    bool writes_run = true, leaves_journal = false;
    std::string log = "all went well\n";
    std::function<void()> at_end = [] {};
  };
  std::map<std::string, Script> scripts;
  std::vector<std::string> launched;  // the first of the cells, and what all are compared in

  ProcessResult launch(const GridCell& cell, const CellFiles& files) override {
    const std::string* const compare = cell.option("compare");
    launched.push_back(cell.name + (compare == nullptr ? "" : ": " + *compare));
    const Script script = scripts[launched.back()];
    write(files.log, script.log);
    for (const auto& name : split_list(files.run.filename().string(), ',')) {
      const std::filesystem::path run = files.run.parent_path() / name;
      const std::filesystem::path journal = run.string() + ".journal";
      // What the recorder refuses: an output that exists.
      CHECK_FALSE(std::filesystem::exists(run));
      CHECK_FALSE(std::filesystem::exists(journal));
      if (script.writes_run) write(run, "run");
      if (script.leaves_journal) write(journal, "journal");
    }
    script.at_end();
    return script.result;
  }
};

inline constexpr const char* kJob = "model = lenet\nranks = 1, 2, 3\n";

struct Sweep {
  explicit Sweep(const char* text = kJob) : job(job_in(folder, text)), grid(expand(job)) {}

  CleanEnvironment environment;
  TestFolder folder;
  Job job;
  Grid grid;
  FakeLauncher launcher;
  std::ostringstream progress;
  int stop = 0;

  GridOutcome run() {
    launcher.launched.clear();
    progress.str("");
    const ResultsFolder results(job, grid);
    return run_grid(
        grid.cells, grid.cells, results.path(), launcher, [&] { return stop; }, progress);
  }
  std::filesystem::path runs() const { return job.results; }
};

inline ExitCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return ExitCode::kOk;
}

}  // namespace gradsync::sweep
