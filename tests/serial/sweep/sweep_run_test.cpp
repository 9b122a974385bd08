// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"
#include "record/journal.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "serial/sweep_fixture.h"
#include "stats/clock.h"
#include "sweep/cell_store.h"
#include "sweep/launcher.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

TEST_CASE("sweep run: all cells once, then none") {
  Sweep sweep;
  const GridOutcome first = sweep.run();
  CHECK(first.done == 3);
  CHECK(first.failed.empty());
  CHECK(sweep.launcher.launched == Names{"lenet-ddp-r1", "lenet-ddp-r2", "lenet-ddp-r3"});
  CHECK(sweep.progress.str().find("[1/3] lenet-ddp-r1 … ") == 0);
  CHECK(contains(sweep.progress.str(), " s left"));
  CHECK_FALSE(contains(sweep.progress.str(), "about -"));

  const GridOutcome second = sweep.run();
  CHECK(second.already == 3);
  CHECK(second.done == 0);
  CHECK(sweep.launcher.launched.empty());

  for (const char* name : {"lenet-ddp-r1.h5", "lenet-ddp-r3.h5"})
    fs::remove(sweep.runs() / name);
  CHECK(sweep.run().done == 2);
  CHECK(contains(sweep.progress.str(), "1 of 3 cells are there already"));
}

TEST_CASE(
    "sweep run: a failed cell is recorded, the grid continues, a later success takes its place") {
  Sweep sweep;
  sweep.launcher.scripts["lenet-ddp-r2"] = {{86, 0},
                                            false,
                                            true,
                                            "step 1\ngradsync-train: rank 1 hangs in backward\n  "
                                            "fix: look at rank 1\nmpirun: something else\n"};
  const GridOutcome first = sweep.run();
  CHECK(first.done == 2);
  REQUIRE(first.failed.size() == 1);
  CHECK(contains(error_text(ExitCode::kCheckFailed, [&] { require_complete(first, 3, "x"); }),
                 "1 of 3 cells failed"));
  CHECK(first.failed[0].cell == "lenet-ddp-r2");
  const auto record =
      nlohmann::json::parse(read_text_file(sweep.runs() / "lenet-ddp-r2.failed.json"));
  CHECK(record["exit_code"] == 86);
  CHECK(record["signal"] == 0);
  CHECK(record["message"] == "rank 1 hangs in backward\nfix: look at rank 1");
  CHECK(record["time"].get<std::string>().size() == 20);
  CHECK(sweep.progress.str().find("failed after") != std::string::npos);

  sweep.launcher.scripts.clear();
  const GridOutcome second = sweep.run();
  CHECK(sweep.launcher.launched == Names{"lenet-ddp-r2"});
  CHECK(second.already == 2);
  CHECK(second.done == 1);
  CHECK(fs::exists(sweep.runs() / "lenet-ddp-r2.h5"));
  CHECK_FALSE(fs::exists(sweep.runs() / "lenet-ddp-r2.failed.json"));
  CHECK(read_text_file(sweep.runs() / "lenet-ddp-r2.interrupted-1.journal") == "journal");
}

namespace {

constexpr const char* kTwoModes = "model = lenet\nsync = none, ddp\nranks = 1, 2\n";
const std::string kFirstJob = "lenet-none-r1: none,ddp", kSecondJob = "lenet-none-r2: none,ddp";

}  // namespace

TEST_CASE("sweep run: contenders of each other are one start, and a cell each") {
  Sweep sweep(kTwoModes);
  CHECK(sweep.run().done == 4);
  CHECK(sweep.launcher.launched == Names{kFirstJob, kSecondJob});
  CHECK(contains(sweep.progress.str(), "[1-2/4] lenet-none-r1 and 1 contender in turn … "));
  CHECK(contains(sweep.progress.str(), "[3-4/4] lenet-none-r2 and 1 contender in turn … "));
  CHECK(sweep.run().already == 4);
  fs::remove(sweep.runs() / "lenet-ddp-r1.h5");
  CHECK(sweep.run().done == 1);
  CHECK(sweep.launcher.launched == Names{"lenet-ddp-r1"});
}

TEST_CASE("sweep run: a job that fails is a failure of each of its cells, tried again together") {
  Sweep sweep(kTwoModes);
  sweep.launcher.scripts[kSecondJob] = {{86, 0}, false, true, "gradsync-train: rank 1 hangs\n"};
  const GridOutcome first = sweep.run();
  CHECK(first.done == 2);
  CHECK(first.failed.size() == 2);
  const auto record =
      nlohmann::json::parse(read_text_file(sweep.runs() / "lenet-ddp-r2.failed.json"));
  CHECK(record["message"] == "rank 1 hangs");
  CHECK(record["log"] == "lenet-none-r2.log");
  write(sweep.runs() / "lenet-none-r2-control.h5.journal", "the control's");
  sweep.launcher.scripts.clear();
  CHECK(sweep.run().done == 2);
  CHECK(sweep.launcher.launched == Names{kSecondJob});
  for (const char* name : {"lenet-none-r2", "lenet-ddp-r2", "lenet-none-r2-control"})
    CHECK(fs::exists(sweep.runs() / (std::string(name) + ".interrupted-1.journal")));
  CHECK_FALSE(fs::exists(sweep.runs() / "lenet-ddp-r2.failed.json"));
}

TEST_CASE("sweep run: what of a failed job is complete stays so") {
  Sweep sweep(kTwoModes);
  sweep.launcher.scripts[kFirstJob] = {{74, 0}, true, false, "gradsync-train: disk full\n"};
  const GridOutcome outcome = sweep.run();
  CHECK(outcome.done == 4);
  CHECK(outcome.failed.empty());
}

namespace {

/// Runs two modes on 1 and 2 ranks, of which one fails in this way, alone as well.
GridOutcome run_apart(Sweep& sweep, const FakeLauncher::Script& fails) {
  sweep.launcher.scripts[kFirstJob] = sweep.launcher.scripts["lenet-ddp-r1"] = fails;
  const GridOutcome outcome = sweep.run();
  CHECK(sweep.launcher.launched == Names{kFirstJob, "lenet-none-r1", "lenet-ddp-r1", kSecondJob});
  CHECK(outcome.done == 3);
  return outcome;
}

}  // namespace

TEST_CASE("sweep run: contenders that do not fit the memory together are run one by one") {
  Sweep sweep(kTwoModes);
  const GridOutcome outcome =
      run_apart(sweep, {{81, 0}, false, false, "gradsync-train: out of memory\n"});
  REQUIRE(outcome.too_large.size() == 1);
  CHECK(outcome.too_large[0].cell == "lenet-ddp-r1");
  CHECK(contains(sweep.progress.str(), "out of memory in one job after"));
  CHECK(contains(sweep.progress.str(), "\n[2/4] lenet-ddp-r1 … out of memory after"));
}

TEST_CASE("sweep run: a contender whose numbers are not finite costs no other one its run") {
  Sweep sweep(kTwoModes);
  const GridOutcome outcome =
      run_apart(sweep, {{80, 0}, false, true, "gradsync-train: rank 1: a NaN\n"});
  REQUIRE(outcome.failed.size() == 1);
  CHECK(outcome.failed[0].cell == "lenet-ddp-r1");
  CHECK(contains(sweep.progress.str(), "numbers not finite in one job after"));
}

TEST_CASE("sweep run: what a job that ran out of memory has completed, or can resume, is kept") {
  Sweep complete(kTwoModes);
  complete.launcher.scripts[kFirstJob] = {{81, 0}, true, false, "gradsync-train: out of memory\n"};
  CHECK(complete.run().done == 4);
  CHECK(complete.launcher.launched == Names{kFirstJob, kSecondJob});
  Sweep resumable("model = lenet\nsync = none, ddp\nranks = 1\n");
  FakeLauncher::Script& out = resumable.launcher.scripts[kFirstJob];
  out = {{81, 0}, false, false, "gradsync-train: memory\n"};
  out.at_end = [&] {
    const CellJob& cells = resumable.grid.cells;
    for (const auto& [cell, name] : {std::pair(cells[0], "none"),
                                     {cells[1], "ddp"},
                                     {control_of(cells[0]), "none (control)"}}) {
      const CellFiles files = cell_files(resumable.runs(), cell);
      RunInfo info = testing::sample_info({"ddp", 1});
      info.experiment = {
          {"id", "one"}, {"contender", name}, {"contenders", "none,ddp,none (control)"}};
      const Recorder recorder(files.run, info);
      fs::create_directories(files.checkpoints);
      write(files.checkpoints / "iteration-000000002.safetensors", "");
    }
  };
  CHECK(resumable.run().failed.size() == 2);
  CHECK(resumable.launcher.launched == Names{kFirstJob});
}

TEST_CASE("sweep run: an interrupted experiment resumes whole or begins again") {
  Sweep sweep("model = lenet\nsync = none, ddp, c10d\nranks = 2\n");
  const GridCell control = control_of(sweep.grid.cells[0]);
  CHECK(control.name == "lenet-none-r2-control");
  fs::create_directories(sweep.runs());
  const auto begin = [&](const GridCell& cell, const std::string& contender) {
    const CellFiles files = cell_files(sweep.runs(), cell);
    RunInfo info = testing::sample_info({"ddp", 2});
    if (!contender.empty())
      info.experiment = {
          {"id", "one"}, {"contender", contender}, {"contenders", "ddp,none,ddp (control)"}};
    const Recorder recorder(files.run, info);
    fs::create_directories(files.checkpoints);
    write(files.checkpoints / "iteration-000000002.safetensors", "");
  };
  const auto starts = [&] {
    std::vector<std::string> texts;
    for (const CellStart& start : starts_of(sweep.runs(), sweep.grid.cells)) {
      texts.emplace_back(start.resumes ? "resumes" : "begins");
      for (const GridCell& cell : start.cells)
        texts.back() += " " + cell.option("sync")->substr();
    }
    return texts;
  };
  CHECK(starts() == Names{"begins none ddp c10d"});
  begin(sweep.grid.cells[1], "ddp");
  CHECK(starts() == Names{"begins none ddp c10d"});
  begin(sweep.grid.cells[0], "none");
  CHECK(starts() == Names{"begins none ddp c10d"});
  // Its reference was ddp then, and c10d was not in it.
  begin(control_of(sweep.grid.cells[1]), "ddp (control)");
  CHECK(starts() == Names{"resumes ddp none", "begins c10d"});
  begin(sweep.grid.cells[2], "");
  CHECK(starts() == Names{"resumes c10d", "resumes ddp none"});
  const auto progress = grid_progress(sweep.grid.cells, sweep.runs());
  CHECK(progress[0].shared_by == 2);
  CHECK(progress[2].shared_by == 1);
}

TEST_CASE("sweep run: an experiment that was killed between its run files is not trained again") {
  Sweep sweep("model = lenet\nsync = none, ddp\nranks = 2\n");
  fs::create_directories(sweep.runs());
  const GridCell &first = sweep.grid.cells[0], &second = sweep.grid.cells[1];
  const auto end = [&](const GridCell& cell, const std::string& contender, bool published) {
    const CellFiles files = cell_files(sweep.runs(), cell);
    RunInfo info = testing::sample_info({contender, 2});
    info.experiment = {
        {"id", "one"}, {"contender", contender}, {"contenders", "none,ddp,none (control)"}};
    Recorder recorder(files.run, info);
    testing::record_sample(recorder, {contender, 2});
    published ? recorder.finish(RunStatus::kComplete) : recorder.end(RunStatus::kComplete);
  };
  // Nothing says that the other contenders have ended.
  end(second, "ddp", false);
  publish_ended(sweep.runs(), sweep.grid.cells, sweep.grid.cells);
  CHECK_FALSE(fs::exists(cell_files(sweep.runs(), second).run));
  end(first, "none", true);
  end(control_of(first), "none", false);
  publish_ended(sweep.runs(), sweep.grid.cells, sweep.grid.cells);
  CHECK(is_complete(cell_files(sweep.runs(), second)));
  CHECK(is_complete(cell_files(sweep.runs(), control_of(first))));
}

TEST_CASE("sweep run: what interrupted runs left is renamed, never deleted") {
  Sweep sweep;
  fs::create_directories(sweep.runs());
  write(sweep.runs() / "lenet-ddp-r1.h5.journal", "second");
  write(sweep.runs() / "lenet-ddp-r1.interrupted-1.journal", "first");
  write(sweep.runs() / "lenet-ddp-r3.h5", "partial");
  write(sweep.runs() / "lenet-ddp-r3.failed.json", "{}");
  write(sweep.runs() / "grid.json", "");
  fs::remove(sweep.runs() / "grid.json");
  // No grid.json beside run files: not a grid to continue.
  CHECK(code_of([&] { sweep.run(); }) == ExitCode::kUsage);
  CHECK(read_text_file(sweep.runs() / "lenet-ddp-r1.h5.journal") == "second");

  set_aside_leftovers(sweep.runs(), sweep.grid.cells[0]);
  set_aside_leftovers(sweep.runs(), sweep.grid.cells[1]);
  set_aside_leftovers(sweep.runs(), sweep.grid.cells[2]);
  CHECK(read_text_file(sweep.runs() / "lenet-ddp-r1.interrupted-1.journal") == "first");
  CHECK(read_text_file(sweep.runs() / "lenet-ddp-r1.interrupted-2.journal") == "second");
  CHECK(read_text_file(sweep.runs() / "lenet-ddp-r3.interrupted-1.run") == "partial");
  CHECK_FALSE(fs::exists(sweep.runs() / "lenet-ddp-r1.h5.journal"));
}

TEST_CASE("sweep run: the lock of a journal that is set aside, of whatever host, is gone") {
  Sweep sweep;
  const GridCell& cell = sweep.grid.cells[0];
  const CellFiles files = cell_files(sweep.runs(), cell);
  fs::create_directories(sweep.runs());
  write(files.journal, "journal");
  const UniqueFd journal(::open(files.journal.c_str(), O_RDONLY));
  write(journal_lock_path(files.journal),
        "host elsewhere, process 1, started 1, job , restart 0\n");
  set_aside_leftovers(sweep.runs(), cell);
  // On a file system of several hosts nobody knows.
  CHECK(fs::exists(journal_lock_path(files.journal)) == !locks_reach_everyone(journal.get()));
}

TEST_CASE("sweep run: a new cell is not the control of one that is there") {
  Sweep sweep;
  const std::string head = "model = lenet\nranks = 2\nsync = ddp, allreduce\n";
  sweep.job = job_in(sweep.folder, head);
  sweep.grid = expand(sweep.job);
  sweep.run();
  sweep.job = job_in(sweep.folder, head + "variant = plain:\nvariant = control: lr=0.5\n");
  CHECK_FALSE(grid_in_folder(sweep.job, expand(sweep.job)).differences.empty());
}

TEST_CASE("sweep run: what was set aside is no progress of the run that took its place") {
  Sweep sweep;
  const CellFiles files = cell_files(sweep.runs(), sweep.grid.cells[0]);
  const auto begin = [&] {
    fs::create_directories(files.checkpoints);
    write(files.checkpoints / "iteration-000000040.safetensors", "");
    write(files.journal, "journal");
    return durable_progress(sweep.runs()).iterations;
  };
  CHECK(begin() == 40);
  set_aside_leftovers(sweep.runs(), sweep.grid.cells[0]);
  CHECK(begin() == 40);
}

TEST_CASE("sweep run: of a log of any length the end is read") {
  Sweep sweep;
  fs::create_directories(sweep.runs());
  const fs::path log = cell_files(sweep.runs(), sweep.grid.cells[0]).log;
  sweep.launcher.scripts["lenet-ddp-r1"] = {
      {86, 0}, false, false, std::string(2 << 20, '.') + "\ngradsync-train: rank 1 hangs\n"};
  CHECK(sweep.run().failed.at(0).message == "rank 1 hangs");
}

TEST_CASE("sweep run: checkpoints without a run are renamed with the next leftovers") {
  Sweep sweep;
  const GridCell& cell = sweep.grid.cells[0];
  const CellFiles files = cell_files(sweep.runs(), cell);
  for (const char* name : {"interrupted-1", "interrupted-2"}) {
    fs::create_directories(files.checkpoints);
    write(files.checkpoints / "iteration-000000040.safetensors", name);
    set_aside_leftovers(sweep.runs(), cell);
    CHECK_FALSE(fs::exists(files.checkpoints));
    CHECK(read_text_file(sweep.runs() / (cell.name + "." + name + ".checkpoints") /
                         "iteration-000000040.safetensors") == name);
  }
}

TEST_CASE("sweep run: a cell whose end was interrupted is complete, and not run again") {
  Sweep sweep;
  sweep.run();
  const GridCell& cell = sweep.grid.cells[0];
  const CellFiles files = cell_files(sweep.runs(), cell);
  fs::remove(files.run);
  testing::write_sample(files.run, {"ddp", 1, 3, 5, 32, 1});
  CHECK(cell_state(files) == CellState::kDone);
  {
    // Before the file got its name.
    fs::remove(files.run);
    Recorder recorder(files.run, testing::sample_info({"ddp", 1}));
    testing::record_sample(recorder, {"ddp", 1, 3, 5, 32, 1});
    CHECK_FALSE(is_resumable(cell, files));
    fs::create_directories(files.checkpoints);
    write(files.checkpoints / "iteration-000000002.safetensors", "");
    CHECK(is_resumable(cell, files));
    fs::remove_all(files.checkpoints);
    write(files.run, "in the way");
    CHECK_THROWS_AS(recorder.finish(RunStatus::kComplete), Error);
    fs::remove(files.run);
  }
  CHECK(cell_state(files) == CellState::kPartial);
  CHECK(is_resumable(cell, files));
  const auto progress = grid_progress({cell}, sweep.runs());
  CHECK(contains(progress[0].message, "complete"));
  CHECK(progress[0].iterations == 3);
  // Before the journal was removed.
  const std::string journal = read_text_file(files.journal);
  finish_interrupted(files.run);
  write(files.journal, journal);
  CHECK(cell_state(files) == CellState::kDone);
  CHECK(sweep.run().already == 3);
  CHECK_FALSE(fs::exists(files.journal));
  // A journal of another run beside it is none of this.
  { Recorder other(files.run.string() + "x", testing::sample_info({"ddp", 2})); }
  fs::rename(files.run.string() + "x.journal", files.journal);
  CHECK(cell_state(files) == CellState::kPartial);
}

TEST_CASE("sweep run: exit 0 without a run file, and a run file with an error, are failures") {
  Sweep sweep;
  sweep.launcher.scripts["lenet-ddp-r1"] = {{0, 0}, false, false, ""};
  sweep.launcher.scripts["lenet-ddp-r2"] = {{70, 0}, true, false, "one\ntwo\n\nthree\nfour\n"};
  sweep.launcher.scripts["lenet-ddp-r3"] = {{-1, 9}, false, false, ""};
  const GridOutcome outcome = sweep.run();
  REQUIRE(outcome.failed.size() == 3);
  CHECK(outcome.failed[0].message == "it ended with exit code 0 but wrote no run file");
  CHECK(outcome.failed[1].message == "two\nthree\nfour");
  CHECK(outcome.failed[2].message.starts_with("killed from outside (signal 9 (Killed))"));
  CHECK(nlohmann::json::parse(
            read_text_file(sweep.runs() / "lenet-ddp-r3.failed.json"))["signal"] == 9);
  sweep.launcher.scripts.clear();
  CHECK(sweep.run().done == 3);
  CHECK(fs::exists(sweep.runs() / "lenet-ddp-r2.interrupted-1.run"));
}

TEST_CASE("sweep run: a stop ends the grid and the cell is run again later") {
  Sweep sweep;
  sweep.stop = 1;
  CHECK(sweep.run().stopped);
  CHECK(sweep.launcher.launched.empty());

  class Stopping : public FakeLauncher {
   public:
    explicit Stopping(int& flag) : flag_(flag) {}
    ProcessResult launch(const GridCell& cell, const CellFiles& files) override {
      flag_ = 1;
      return FakeLauncher::launch(cell, files);
    }

   private:
    int& flag_;
  };
  sweep.stop = 0;
  Stopping stopping(sweep.stop);
  stopping.scripts["lenet-ddp-r1"] = {{1, 0}, false, true, ""};
  std::ostringstream progress;
  const auto outcome = run_grid(
      sweep.grid.cells, sweep.grid.cells, sweep.runs(), stopping, [&] { return sweep.stop; },
      progress);
  CHECK(outcome.stopped);
  CHECK(stopping.launched == Names{"lenet-ddp-r1"});
  // Neither failed nor done: what is left says that it can be tried again.
  CHECK(cell_state(cell_files(sweep.runs(), sweep.grid.cells[0])) == CellState::kPartial);
  sweep.stop = 0;
  CHECK(sweep.run().done == 3);
}

TEST_CASE("sweep run: a cell that succeeds while the stop comes counts as done") {
  Sweep sweep;
  fs::create_directories(sweep.runs());
  int asked = 0;
  const auto outcome = run_grid(
      sweep.grid.cells, sweep.grid.cells, sweep.runs(), sweep.launcher,
      [&] { return asked++ > 0 ? 1 : 0; }, sweep.progress);
  CHECK(outcome.done == 1);
  CHECK(outcome.stopped);
}

TEST_CASE("sweep run: a run that ends with 75 stops the grid and is no failure") {
  Sweep sweep;
  sweep.launcher.scripts["lenet-ddp-r2"] = {{75, 0}, true, true, "gradsync-train: stopped\n"};
  const GridOutcome outcome = sweep.run();
  CHECK(outcome.stopped);
  CHECK(outcome.stopped_cell == "lenet-ddp-r2");
  const std::string text = error_text(
      ExitCode::kStoppedEarly, [&] { require_complete(outcome, 3, "gradsync-sweep x.cfg"); });
  CHECK(text == "stopped with 1 of 3 cells complete | continue with: gradsync-sweep x.cfg");
  CHECK(outcome.done == 1);
  CHECK(outcome.failed.empty());
  CHECK(sweep.launcher.launched == Names{"lenet-ddp-r1", "lenet-ddp-r2"});
  const CellFiles files = cell_files(sweep.runs(), sweep.grid.cells[1]);
  CHECK(cell_state(files) == CellState::kPartial);
  CHECK_FALSE(fs::exists(files.failure));
}

TEST_CASE("sweep run: a cell that is tried again and stopped is no failure any more") {
  Sweep sweep;
  sweep.launcher.scripts["lenet-ddp-r2"] = {{86, 0}, false, true, "gradsync-train: hang\n"};
  sweep.run();
  const CellFiles files = cell_files(sweep.runs(), sweep.grid.cells[1]);
  CHECK(cell_state(files) == CellState::kFailed);
  sweep.launcher.scripts["lenet-ddp-r2"] = {{75, 0}, true, true, "gradsync-train: stopped\n"};
  sweep.run();
  CHECK(cell_state(files) == CellState::kPartial);
}

TEST_CASE("sweep run: a cell that has the name of another's control has a run file of its own") {
  Sweep sweep;
  sweep.job = job_in(sweep.folder,
                     "model = lenet\ninterleave = no\nvariant = lars-control: lr=0.1\n"
                     "variant = lars: lr=0.2\n");
  sweep.grid = expand(sweep.job);
  CHECK(sweep.run().done == 2);
  CHECK(sweep.run().already == 2);
  for (const GridCell& cell : sweep.grid.cells)
    CHECK(fs::exists(cell_files(sweep.runs(), cell).run));
}

TEST_CASE("sweep run: a network in a hidden or relative path is a grid to continue") {
  Sweep sweep;
  for (const char* model : {"./net.pt", "../net.pt", "-net.pt"}) {
    CAPTURE(model);
    fs::remove_all(sweep.runs());
    sweep.job =
        job_in(sweep.folder, fmt::format("model = {}\ninput = 3x32x32\nclasses = 10\n", model));
    sweep.grid = expand(sweep.job);
    sweep.run();
    CHECK_NOTHROW(grid_in_folder(sweep.job, sweep.grid));
    CHECK(fs::exists(cell_files(sweep.runs(), sweep.grid.cells.front()).run));
  }
}

TEST_CASE("sweep run: a cell that is still to run must fit") {
  class Small : public FakeLauncher {
   public:
    void require_room(const GridCell& cell) const override {
      if (cell.ranks > 2) throw Error(ExitCode::kEnvironment, "too many");
    }
  };
  Sweep sweep;
  const Small small;
  CHECK(code_of([&] { require_room(sweep.grid.cells, sweep.runs(), small); }) ==
        ExitCode::kEnvironment);
  CHECK_FALSE(fs::exists(sweep.runs()));
  sweep.run();
  CHECK_NOTHROW(require_room(sweep.grid.cells, sweep.runs(), small));
}

TEST_CASE("results folder: sweeps of single cells share it, a sweep of the whole grid does not") {
  Sweep sweep;
  const ResultsFolder one(sweep.job, sweep.grid, FolderUse::kOneCell);
  const ResultsFolder other(sweep.job, sweep.grid, FolderUse::kOneCell);
  CHECK(code_of([&] { ResultsFolder(sweep.job, sweep.grid); }) == ExitCode::kStoppedEarly);
}

TEST_CASE("cell lock: one at a time, seen from outside, gone with its owner") {
  const TestFolder folder;
  const CellFiles files = cell_files(folder.path(), {"cell", 1, 1, {}});
  CHECK_FALSE(is_running(files));
  {
    const CellLock lock(files);
    CHECK(is_running(files));
    std::string text;
    CHECK(code_of([&] { const CellLock second(files); }, &text) == ExitCode::kStoppedEarly);
    CHECK(text.find(", process " + std::to_string(getpid())) != std::string::npos);
  }
  CHECK_FALSE(is_running(files));
  CHECK_FALSE(fs::exists(files.running));
  write(files.running, "host gone, process 1\n");  // of a sweep that was killed
  CHECK_FALSE(is_running(files));
  const CellLock lock(files);
  CHECK(is_running(files));
}

TEST_CASE("results folder: another grid is refused, saying what differs") {
  Sweep sweep;
  sweep.run();
  const Job other = job_in(sweep.folder, "model = lenet\nranks = 1, 2\nlr = 0.2\n");
  std::string text;
  CHECK(code_of([&] { ResultsFolder(other, expand(other)); }, &text) == ExitCode::kUsage);
  CHECK(text.find("lr: not set there, 0.2 here") != std::string::npos);
  CHECK(text.find("ranks: 1, 2, 3 there, 1, 2 here") != std::string::npos);
  for (const char* line : {"mpirun-options = --map-by core", "srun-options = --overlap",
                           "ranks-per-node = 2", "seed = 2", "ranks = 5"}) {
    CAPTURE(line);
    const std::string ranks = std::string(line).starts_with("ranks =") ? "" : "ranks = 1, 2\n";
    const Job another = job_in(sweep.folder, "model = lenet\n" + ranks + line);
    CHECK(code_of([&] { ResultsFolder(another, expand(another)); }) == ExitCode::kUsage);
  }
  CHECK_NOTHROW(ResultsFolder(sweep.job, expand(sweep.job)));
}

TEST_CASE(
    "results folder: a wider or narrower grid runs what is missing, under the folder's names") {
  Sweep sweep;  // ranks 1, 2, 3
  sweep.run();
  const auto run_also = [&](const char* text) {
    sweep.job = job_in(sweep.folder, text);
    sweep.grid = grid_in_folder(sweep.job, expand(sweep.job)).grid;
    return sweep.run();
  };
  CHECK(run_also("model = lenet\nranks = 2").already == 1);
  CHECK(sweep.grid.cells.at(0).number == 2);
  const GridOutcome wider = run_also("model = lenet\nranks = 4, 2\nseed = 1, 7\nrepeats = 2\n");
  CHECK(wider.already == 1);
  CHECK(wider.done == 7);
  CHECK(names_of(sweep.grid)[4] == "lenet-ddp-r2");
  CHECK(names_of(sweep.grid)[5] == "lenet-ddp-r2-seed1-x2");
  CHECK(sweep.grid.cells[0].number == 4);
  CHECK(cell_named(sweep.grid, "2").name == "lenet-ddp-r2");
  CHECK(contains(refusal([&] { cell_named(sweep.grid, "1"); }), "is not a cell"));
  CHECK(grid_in_folder(sweep.job, sweep.grid).cells.size() == 10);
  CHECK(run_also("model = lenet\nranks = 2\nrepeats = 2\nseed = 1, 7").already == 4);
}

TEST_CASE("results folder: a grid.json of version 1 is read") {
  Sweep sweep;
  sweep.run();
  // As version 0.1.0 wrote it for these lines.
  const std::string content =
      R"({"exclude":[],"mpirun_options":[],"repeats":1,"settings":{"model":["lenet"],"ranks":["1","2"]}})";
  Sha256 digest;
  digest.update(content);
  std::string cells;
  for (const char* ranks : {"1", "2"})
    cells += std::string(cells.empty() ? "" : ",") + R"({"name":"lenet-ddp-r)" + ranks +
             R"(","ranks":)" + ranks + R"(,"repeat":1,"options":{"model":"lenet"}})";
  write(sweep.runs() / "grid.json", R"({"schema":"gradsync-grid/1","content":)" + content +
                                        R"(,"digest":")" + digest.hex() + R"(","cells":[)" + cells +
                                        "]}");
  const FolderGrid there = grid_in_folder(sweep.job, sweep.grid);
  CHECK(there.differences.empty());
  CHECK(there.cells.size() == 3);
}

TEST_CASE("results folder: a damaged grid.json is exit 65") {
  Sweep sweep;
  sweep.run();
  std::string grid = read_text_file(sweep.runs() / "grid.json");
  for (const std::string& damaged : {std::string("{"), std::string("[]"), std::string("")}) {
    write(sweep.runs() / "grid.json", damaged);
    CHECK(code_of([&] { sweep.run(); }) == ExitCode::kBadData);
  }
  grid.replace(grid.find("lenet", grid.find("\"cells\"")), 5, "vgg11");
  write(sweep.runs() / "grid.json", grid);
  CHECK(code_of([&] { sweep.run(); }) == ExitCode::kBadData);
}

TEST_CASE("results folder: one sweep at a time") {
  Sweep sweep;
  const ResultsFolder first(sweep.job, sweep.grid);
  for (const char* lock : {"sweep.lock", "grid.lock"})
    CHECK((std::filesystem::status(sweep.job.results / lock).permissions() &
           (std::filesystem::perms::group_all | std::filesystem::perms::others_all)) ==
          std::filesystem::perms::none);
  std::string text;
  CHECK(code_of([&] { ResultsFolder(sweep.job, sweep.grid); }, &text) == ExitCode::kStoppedEarly);
  CHECK(text.find("another sweep") != std::string::npos);
}

TEST_CASE("results folder: a file, a loop of links or too long a name in its place") {
  Sweep sweep;
  write(sweep.runs(), "a file");
  CHECK(code_of([&] { sweep.run(); }) == ExitCode::kCannotCreate);
  CHECK(code_of([&] { grid_in_folder(sweep.job, sweep.grid); }) == ExitCode::kCannotCreate);
  fs::create_symlink(sweep.folder / "loop", sweep.folder / "loop");
  for (const fs::path& name :
       {sweep.folder / "loop", sweep.folder / std::string(300, 'x'), sweep.folder / "loop/runs"}) {
    sweep.job.results = name;
    CHECK(code_of([&] { sweep.run(); }) == ExitCode::kCannotCreate);
    CHECK(code_of([&] { grid_in_folder(sweep.job, sweep.grid); }) == ExitCode::kCannotCreate);
  }
}

TEST_CASE("results folder: the grid of one in which nothing was started gives way") {
  Sweep sweep;
  const Job other = job_in(sweep.folder, "model = lenet\nseed = 7\n");
  { const ResultsFolder folder(sweep.job, sweep.grid); }
  CHECK_NOTHROW(ResultsFolder(other, expand(other)));
  CHECK(contains(read_text_file(sweep.runs() / "grid.json"), "\"seed\": \"7\""));
  for (const char* trace : {"lenet-ddp-r1.log", "lenet-ddp-r1.h5.journal", "slurm"}) {
    fs::create_directory(sweep.runs() / trace);
    CHECK(code_of([&] { ResultsFolder(sweep.job, sweep.grid); }) == ExitCode::kUsage);
    fs::remove(sweep.runs() / trace);
  }
}

TEST_CASE("results folder: cells named in grid.json stay inside of it, under a name of their own") {
  Sweep sweep;
  sweep.run();
  const fs::path file = sweep.runs() / "grid.json";
  const nlohmann::json grid = nlohmann::json::parse(read_text_file(file));
  const std::string victim = (sweep.folder / "victim/notes").string();
  for (const std::string& name :
       {victim, std::string("../victim/notes"), std::string("a/b"), std::string(".."),
        std::string(""), std::string(".hidden"), std::string("-rf"), std::string("a\nb"),
        std::string("lenet-ddp-r2")}) {
    CAPTURE(name);
    nlohmann::json forged = grid;
    forged["cells"][0]["name"] = name;
    Sha256 digest;
    digest.update(nlohmann::json{{"launch", forged["launch"]}, {"cells", forged["cells"]}}.dump());
    forged["digest"] = digest.hex();
    write(file, forged.dump());
    std::string text;
    CHECK(code_of([&] { grid_in_folder(sweep.job, sweep.grid); }, &text) == ExitCode::kBadData);
    CHECK(contains(text, "is no name of a cell"));
  }
}

TEST_CASE("results folder: ranks in grid.json are a whole number") {
  Sweep sweep;
  sweep.run();
  const fs::path file = sweep.runs() / "grid.json";
  nlohmann::json grid = nlohmann::json::parse(read_text_file(file));
  for (const nlohmann::json& ranks : {nlohmann::json(1.5), nlohmann::json(1e300)}) {
    grid["cells"][0]["ranks"] = ranks;
    Sha256 digest;
    digest.update(nlohmann::json{{"launch", grid["launch"]}, {"cells", grid["cells"]}}.dump());
    grid["digest"] = digest.hex();
    write(file, grid.dump());
    CHECK(code_of([&] { grid_in_folder(sweep.job, sweep.grid); }) == ExitCode::kBadData);
  }
}

TEST_CASE("results folder: whoever may only read it cannot lock it") {
  Sweep sweep;
  const mode_t before = umask(022);
  { const ResultsFolder folder(sweep.job, sweep.grid); }
  for (const char* name : {"sweep.lock", "grid.lock"})
    CHECK((fs::status(sweep.runs() / name).permissions() & fs::perms::all) ==
          (fs::perms::owner_read | fs::perms::owner_write));
  umask(before);
  // A reader's lock on the file of a cell.
  const CellFiles files = cell_files(sweep.runs(), sweep.grid.cells[0]);
  write(files.running, "");
  const UniqueFd reader(::open(files.running.c_str(), O_RDONLY));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  REQUIRE(::fcntl(reader.get(), F_OFD_SETLK, &lock) == 0);
  CHECK_FALSE(is_running(files));
  const CellLock ours(files);
  CHECK(is_running(files));
}

namespace {

/// Each run takes a while.
class SlowLauncher : public FakeLauncher {
 public:
  ProcessResult launch(const GridCell& cell, const CellFiles& files) override {
    began_s.push_back(now_s());
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return FakeLauncher::launch(cell, files);
  }
  std::vector<double> began_s;
};

}  // namespace

TEST_CASE("sweep run: each cell left takes the mean time of those that ran") {
  Sweep sweep;
  const ResultsFolder results(sweep.job, sweep.grid);
  SlowLauncher slow;
  run_grid(
      sweep.grid.cells, sweep.grid.cells, sweep.runs(), slow, [] { return 0; }, sweep.progress);
  REQUIRE(slow.began_s.size() == 3);
  const std::string text = sweep.progress.str(), about = "about ";
  const auto first = text.find(about), second = text.find(about, first + 1);
  REQUIRE(second != std::string::npos);
  const auto left_s = [&](std::size_t at) { return std::stod(text.substr(at + about.size())); };
  // Whole seconds; a run is over before the next begins.
  CHECK(left_s(first) <= 2 * (slow.began_s[1] - slow.began_s[0]) + 0.5);
  CHECK(left_s(second) <= (slow.began_s[2] - slow.began_s[0]) / 2 + 0.5);
  CHECK(left_s(first) >= 1);
}

TEST_CASE("sweep run: time left for people") {
  CHECK(time_left_text(40.4) == "about 40 s left");
  CHECK(time_left_text(89) == "about 89 s left");
  CHECK(time_left_text(90) == "about 2 min left");
  CHECK(time_left_text(125) == "about 2 min left");
  CHECK(time_left_text(5399) == "about 90 min left");
  CHECK(time_left_text(5400) == "about 2 h left");
  CHECK(time_left_text(7300) == "about 2 h left");
}

TEST_CASE("stop signals: remembered while the guard lives, as before afterwards") {
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  {
    const StopSignals signals({SIGTERM, SIGUSR1});
    CHECK(signals.received() == 0);
    raise(SIGTERM);
    raise(SIGUSR1);
    CHECK(signals.received() == SIGUSR1);
    CHECK(signals.count() == 2);
  }
  sigaction(SIGTERM, nullptr, &after);
  const bool restored = before.sa_handler == after.sa_handler;
  CHECK(restored);
  const StopSignals again({SIGTERM});
  CHECK(again.count() == 0);
}

TEST_CASE("local launcher: a program that is missing is exit 69") {
  CHECK(code_of([] { require_program("/nonexistent/gradsync-train"); }) == ExitCode::kEnvironment);
  CHECK_NOTHROW(require_program("/bin/sh"));
}
