// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "base/table.h"
#include "serial/sample_run.h"
#include "serial/sweep_fixture.h"
#include "sweep/cell_store.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;

TEST_CASE("sweep run: out of memory ends the ladder of its batch sizes, as a result") {
  Sweep sweep("model = lenet\nseed = 1, 2\nbatch-per-rank = 8, 16, 32\n");
  sweep.launcher.scripts["lenet-ddp-r1-b16-seed1"] = {
      {81, 0}, false, false, "gradsync-train: out of memory\n"};
  const GridOutcome first = sweep.run();
  CHECK(first.failed.empty());
  CHECK(first.done == 4);
  REQUIRE(first.too_large.size() == 2);
  CHECK(first.too_large[1].cell == "lenet-ddp-r1-b32-seed1");
  CHECK(first.too_large[1].message == "not run: batch 16 per rank ran out of memory");
  const auto state = [&](std::size_t cell) {
    return cell_state(cell_files(sweep.runs(), sweep.grid.cells[cell]));
  };
  CHECK(state(0) == CellState::kDone);
  CHECK(state(1) == CellState::kOutOfMemory);
  CHECK(state(2) == CellState::kNotRun);
  CHECK(state(5) == CellState::kDone);  // batch 32 of the other seed

  // It stays a result until its record is removed.
  const GridOutcome second = sweep.run();
  CHECK(sweep.launcher.launched.empty());
  CHECK(second.too_large.size() == 2);
  sweep.launcher.scripts.clear();
  fs::remove(sweep.runs() / "lenet-ddp-r1-b16-seed1.failed.json");
  CHECK(sweep.run().done == 2);
}

TEST_CASE("batch ladder: smaller batches are tried, repeats of the same are not") {
  Sweep sweep("model = lenet\nbatch-global = 64, 128, 256\nranks = 2\nrepeats = 2\n");
  const auto& cells = sweep.grid.cells;
  fs::create_directories(sweep.runs());
  for (const std::size_t i : {4, 2})  // 256, then 128: the smaller one counts
    record_failure(cell_files(sweep.runs(), cells[i]), cells[i],
                   {CellState::kOutOfMemory, {81, 0}, "too large"});
  const GridOutcome outcome = sweep.run();
  CHECK(sweep.launcher.launched == Names{cells[0].name, cells[1].name});
  REQUIRE(outcome.too_large.size() == 4);
  CHECK(outcome.too_large[2].cell == cells[3].name);
  for (const std::size_t i : {2, 3})
    CHECK(outcome.too_large[i].message == "not run: batch 64 per rank ran out of memory");
}

TEST_CASE("batch ladder: an open one grows by its last ratio to the largest batch") {
  const CleanEnvironment environment;
  const auto grid_of = [](const std::string& text) {
    return expand(make_job(parse_key_values(text, "t"), {}, "t"));
  };
  const Grid grid = grid_of("batch-per-rank = 16, 32, 128, ...\nsync = none\n");
  REQUIRE(grid.cells.size() == 16);  // 16, then 32 to 32 * 4^14, as report c's ladder ends
  CHECK(train_options_of(grid.cells[0]).batch_per_rank == 16);
  CHECK(train_options_of(grid.cells[3]).batch_per_rank == 512);
  CHECK(train_options_of(grid.cells.back()).batch_per_rank == 8589934592);
  // In a condition too: three batches on 2 ranks, the ladder on 1.
  const Grid ladder = grid_of(
      "batch-per-rank = 32, 128, …\nranks = 1, 2\nexclude = ranks=2 "
      "batch-per-rank=2048,8192,...\n");
  CHECK(ladder.cells.size() == 18);
  CHECK(ladder.remarks.empty());
  CHECK(contains(refusal([&] { grid_of("batch-per-rank = 32, ...\n"); }), "two batch sizes"));
  CHECK(contains(refusal([&] { grid_of("batch-per-rank = 32, 48, ...\n"); }), "no multiple of 32"));
  CHECK(contains(refusal([&] { grid_of("batch-per-rank = 64, 32, ...\n"); }), "no multiple"));
  CHECK(contains(refusal([&] { grid_of("seed = 1, 2, ...\n"); }), "nothing else"));
}

TEST_CASE("sweep run: an open ladder ends where memory does") {
  Sweep sweep("model = lenet\nsync = none\nbatch-per-rank = 8, 32, ...\n");
  sweep.launcher.scripts["lenet-none-r1-b512"] = {
      {81, 0}, false, false, "gradsync-train: out of memory\n"};
  const GridOutcome outcome = sweep.run();
  CHECK(outcome.failed.empty());
  CHECK(outcome.done == 3);
  CHECK(sweep.launcher.launched.size() == 4);
  CHECK(outcome.too_large.size() == sweep.grid.cells.size() - 3);
}

TEST_CASE("cell record: a kill is for memory only where the kernel or Slurm reports one") {
  const auto for_memory = [](const ProcessResult& result, std::int64_t counted,
                             const std::string& log) {
    return failure_of(result, counted, log).kind == CellState::kOutOfMemory;
  };
  const auto killed = [](const ProcessResult& result, const std::string& log) {
    return failure_of(result, 0, log).message.starts_with("killed from outside (");
  };
  const ProcessResult slain{137, 0}, early{9, 0}, signaled{-1, 9}, hang{86, 0};
  CHECK(for_memory(slain, 1, ""));
  CHECK(for_memory(signaled, 2, ""));
  CHECK(for_memory(slain, 0, "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n"));
  CHECK(for_memory(slain, 0, "srun: error: n1: task 0: Out Of Memory\n"));
  CHECK(for_memory({253, 0}, 0, "srun: error: n1: task 0: Out Of Memory\n"));
  CHECK_FALSE(for_memory({253, 0}, 1, "gradsync-train: wrong\n"));
  CHECK_FALSE(for_memory(slain, 0, "srun: error: n1: task 0: Killed\n"));
  CHECK_FALSE(for_memory(hang, 1, "oom_kill"));
  CHECK(for_memory({81, 0}, 0, ""));
  CHECK(killed(slain, ""));
  CHECK(killed(early, ""));
  CHECK(killed(signaled, ""));
  CHECK_FALSE(killed(hang, ""));
  const std::string of_intel = "=   RANK 1 PID 7 RUNNING AT vm\n=   KILLED BY SIGNAL: ";
  CHECK(killed({255, 0}, of_intel + "9 (Killed)\n"));
  CHECK_FALSE(killed({255, 0}, of_intel + "11 (Segmentation fault)\n"));
  CHECK_FALSE(killed({1, 0}, of_intel + "9 (Killed)\n"));
  CHECK(for_memory({255, 0}, 1, of_intel + "9 (Killed)\n"));
}

TEST_CASE("cell record: the words for a failure are the program's, else the launcher's of a rank") {
  const auto words = [](const std::string& log) { return failure_of({1, 0}, 0, log).message; };
  const std::string killed =
      "epoch 1 iteration 5 loss 2.2\n"
      "srun: error: n2: task 1: Killed\n"
      "srun: Terminating StepId=7.1\n"
      "slurmstepd: error: *** STEP 7.1 ON n1 CANCELLED ***\n"
      "srun: error: n1: task 0: Terminated\n";
  CHECK(words(killed) == "srun: error: n2: task 1: Killed");
  CHECK(words("gradsync-train: warning: oversubscribed\n" + killed) ==
        "srun: error: n2: task 1: Killed");
  const std::string noticed =
      "mpirun noticed that process rank 1 with PID 7 on node vm exited on signal 9 (Killed).";
  CHECK(words("----\n" + noticed + "\n----\n") == noticed);
  for (const std::string line :
       {"=   KILLED BY SIGNAL: 9 (Killed)",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"})
    CHECK(words("===\n" + line + "\n===\nThis\nPlease\n") == line);
  CHECK(words("gradsync-train: no data\n  fix: make data\n" + killed) == "no data\nfix: make data");
  CHECK(words("a\nb\n\nc\nd\n") == "b\nc\nd");
  // Words of one launcher alone tell of no rank.
  CHECK(words("srun: error: no room\nepoch 1: task 0\nb\nc\nd\n") == "b\nc\nd");
  CHECK(words("") == "it printed nothing");
}

TEST_CASE("cell record: read as written, and damaged ones are failures") {
  const TestFolder folder;
  const GridCell cell{"cell", 1, 1, {}};
  const CellFiles files = cell_files(folder.path(), cell);
  CHECK_FALSE(recorded_failure(files).has_value());
  record_failure(files, cell, {CellState::kOutOfMemory, {137, 0}, "too large \xff", 2.5});
  const auto failure = recorded_failure(files);
  REQUIRE(failure.has_value());
  CHECK(failure->kind == CellState::kOutOfMemory);
  CHECK(failure->result.exit_code == 137);
  CHECK(failure->message.starts_with("too large "));
  CHECK(failure->duration_s == 2.5);
  for (const char* damaged : {"", "[]", "{", R"({"kind":7,"exit_code":"x","message":[]})",
                              R"({"exit_code":1e300})", R"({"exit_code":4294967297})"}) {
    write(files.failure, damaged);
    CHECK(recorded_failure(files)->kind == CellState::kFailed);
    CHECK(recorded_failure(files)->result.exit_code == -1);
    CHECK(recorded_failure(files)->result.signal == 0);
  }
}

namespace {

// A run of `rows` iterations of 0.1 s on a training set of `images`; it ends if `ended`.
void record_run(const fs::path& file, std::size_t rows, std::int64_t images, bool ended) {
  RunInfo info = testing::sample_info({"ddp", 1});
  info.provenance.push_back({"train_images", std::to_string(images)});
  Recorder recorder(file, info);
  for (std::size_t i = 0; i < rows; ++i) {
    IterationRow row = testing::sample_row({"ddp", 1}, i);
    row.ranks[0].begin_s = 0.1 * static_cast<double>(i);
    row.ranks[0][Phase::kIteration] = 0.1;
    recorder.add(row);
  }
  if (ended) recorder.finish(RunStatus::kComplete);
}

std::string shown(const Table& table) {
  std::ostringstream text;
  print_text(text, table);
  return text.str();
}

const char* const kFiveCells = "model = lenet\nbatch-per-rank = 1, 2, 5, 10, 20\n";

}  // namespace

TEST_CASE("status: iterations a cell is to do") {
  const CleanEnvironment environment;
  const auto wanted = [](const std::string& text, std::int64_t images) {
    return iterations_wanted(expand(make_job(parse_key_values(text, "t"), {}, "t")).cells[0],
                             images);
  };
  CHECK(wanted("iterations = 20", 0) == 20);
  CHECK(wanted("epochs = 3", 0) == 0);
  CHECK(wanted("epochs = 3\nbatch-per-rank = 32", 100) == 12);
  CHECK(wanted("epochs = 3\nbatch-per-rank = 32\nlast-batch = drop", 100) == 9);
  CHECK(wanted("epochs = 3\nbatch-global = 32\nranks = 2\naccumulate = 2", 128) == 12);
  CHECK(wanted("iterations = 20\nbatch-per-rank = 32", 100) == 4);  // an epoch ends it
  CHECK(wanted("epochs = 30\nbatch-per-rank = 128\naccumulate = 2", 640) == 90);
  CHECK(wanted("epochs = 3\nbatch-per-rank = 128\naccumulate = 2\nlast-batch = drop", 640) == 6);
  CHECK(wanted("epochs = 3\nvariant = growing: batch-schedule=0:64,2:128", 640) == 25);
  CHECK(wanted("ranks = 200", 100) == 0);
}

TEST_CASE("status: done, running, failed, partial and missing cells, and the time left") {
  Sweep sweep(kFiveCells);
  fs::create_directories(sweep.runs());
  const auto files = [&](std::size_t cell) {
    return cell_files(sweep.runs(), sweep.grid.cells[cell]);
  };
  record_run(files(0).run, 100, 100, true);
  record_run(files(1).run, 10, 100, false);
  const CellLock lock(files(1));
  record_failure(files(2), sweep.grid.cells[2], {CellState::kFailed, {86, 0}, "hang\nfix: x", 1});
  record_run(files(3).run, 5, 100, false);

  const auto cells = grid_progress(sweep.grid.cells, sweep.runs());
  REQUIRE(cells.size() == 5);
  CHECK(cells[0].state == CellState::kDone);
  CHECK(cells[0].share() == 1);
  CHECK(cells[0].time_s == doctest::Approx(10));
  CHECK(cells[1].state == CellState::kRunning);
  CHECK(cells[1].wanted == 50);
  CHECK(cells[1].share() == doctest::Approx(0.2));
  CHECK(cells[2].message == "hang");
  CHECK(cells[3].state == CellState::kPartial);
  CHECK(cells[3].share() == doctest::Approx(0.5));
  CHECK(cells[4].state == CellState::kMissing);
  CHECK(cells[4].wanted == 5);
  // Whole cells take 10, 5 and 1 s; 0.8 + 0.5 + 1 of a cell are left.
  CHECK(seconds_left(cells) == doctest::Approx(16.0 / 3 * 2.3));
  // Contenders of one job had its time together.
  auto shared = cells;
  for (CellProgress& cell : shared)
    cell.shared_by = 2;
  CHECK(seconds_left(shared) == doctest::Approx(8.0 / 3 * 2.3));

  CHECK(status_table("test", cells, "results/test").rows[0][0].number == 1);
  const std::string text = shown(status_table("test", cells, "results/test"));
  for (const char* part :
       {"Grid test", "100 of 100", "10 of 50", "by host ", "5 of 10", "no checkpoint: starts again",
        "1 of 5 cells done, 1 missing, 1 running, 1 partial, 1 failed", "about 12 s left",
        "results: results/test"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part << " is not in\n" << text);
}

TEST_CASE("status: the time of a cell that has done one iteration") {
  Sweep sweep(kFiveCells);
  fs::create_directories(sweep.runs());
  record_run(cell_files(sweep.runs(), sweep.grid.cells[0]).run, 1, 100, false);
  const CellProgress one = grid_progress(sweep.grid.cells, sweep.runs())[0];
  CHECK(one.iterations == 1);
  CHECK(one.time_s == doctest::Approx(0.1));
}

TEST_CASE("status: nothing has begun, nothing is left, a damaged file") {
  Sweep sweep(kFiveCells);
  const auto before = grid_progress(sweep.grid.cells, sweep.runs());
  CHECK(std::isnan(seconds_left(before)));
  CHECK(shown(status_table("test", before, "results/test")).find("time left: unknown") !=
        std::string::npos);

  sweep.run();  // writes "run" for run files
  const auto after = grid_progress(sweep.grid.cells, sweep.runs());
  CHECK(after[0].state == CellState::kDone);
  CHECK(after[0].message.find("lenet-ddp-r1-b1.h5") != std::string::npos);
  CHECK(after[0].iterations == 0);
}

TEST_CASE("durable progress: complete cells, then iterations of the newest checkpoints") {
  const TestFolder folder;
  CHECK(durable_progress(folder / "none") == DurableProgress{0, 0});
  for (const char* name : {"a.h5", "b.h5", "b.h5.journal", "c.h5.journal", "d.log"})
    write(folder / name, "");
  CHECK(durable_progress(folder.path()) == DurableProgress{1, 0});
  fs::create_directories(folder / "b.checkpoints");
  fs::create_directories(folder / "c.checkpoints");
  for (const char* name :
       {"b.checkpoints/iteration-000000120.safetensors",
        "b.checkpoints/iteration-000000080.safetensors", "b.checkpoints/other.safetensors",
        "b.checkpoints/iteration-900.tmp", "c.checkpoints/iteration-000000007.safetensors"})
    write(folder / name, "");
  const DurableProgress now = durable_progress(folder.path());
  CHECK(now == DurableProgress{1, 127});
  CHECK(now > DurableProgress{1, 126});
  CHECK(now < DurableProgress{2, 0});
}
