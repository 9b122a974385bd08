#include <filesystem>
#include <string>

#include <doctest/doctest.h>

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
  const CleanEnvironment environment;
  const Grid grid = expand(make_job(
      parse_key_values("batch-global = 64, 128, 256\nranks = 2\nrepeats = 2", "t"), {}, "t"));
  BatchLadders ladders;
  CHECK_FALSE(ladders.ended_at(grid.cells[4]).has_value());
  ladders.end_at(grid.cells[4]);  // 256, then 128: the smaller one counts
  ladders.end_at(grid.cells[2]);
  CHECK_FALSE(ladders.ended_at(grid.cells[0]).has_value());
  CHECK(ladders.ended_at(grid.cells[3]) == 64);
  CHECK(ladders.ended_at(grid.cells[5]) == 64);
}

TEST_CASE("batch ladder: an open one grows by its last ratio to the largest batch") {
  const CleanEnvironment environment;
  const auto grid_of = [](const std::string& text) {
    return expand(make_job(parse_key_values(text, "t"), {}, "t"));
  };
  const Grid grid = grid_of("batch-per-rank = 16, 32, 128, ...\nsync = none\n");
  REQUIRE(grid.cells.size() == 16);  // 16, then 32 to 32 * 4^14, as report c's ladder ends
  CHECK(batch_per_rank(grid.cells[0]) == 16);
  CHECK(batch_per_rank(grid.cells[3]) == 512);
  CHECK(batch_per_rank(grid.cells.back()) == 8589934592);
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
  const ProcessResult slain{137, 0}, early{9, 0}, signaled{-1, 9}, hang{86, 0};
  CHECK(killed_for_memory(slain, 1, ""));
  CHECK(killed_for_memory(signaled, 2, ""));
  CHECK(
      killed_for_memory(slain, 0, "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n"));
  CHECK(killed_for_memory(slain, 0, "srun: error: n1: task 0: Out Of Memory\n"));
  CHECK_FALSE(killed_for_memory(slain, 0, "srun: error: n1: task 0: Killed\n"));
  CHECK_FALSE(killed_for_memory(hang, 1, "oom_kill"));
  CHECK(was_killed(slain, ""));
  CHECK(was_killed(early, ""));
  CHECK(was_killed(signaled, ""));
  CHECK_FALSE(was_killed(hang, ""));
  const std::string of_intel = "=   RANK 1 PID 7 RUNNING AT vm\n=   KILLED BY SIGNAL: ";
  CHECK(was_killed({255, 0}, of_intel + "9 (Killed)\n"));
  CHECK_FALSE(was_killed({255, 0}, of_intel + "11 (Segmentation fault)\n"));
  CHECK_FALSE(was_killed({1, 0}, of_intel + "9 (Killed)\n"));
  CHECK(killed_for_memory({255, 0}, 1, of_intel + "9 (Killed)\n"));
  CHECK(kernel_memory_kills() >= 0);
}

TEST_CASE("cell record: the words for a failure are the program's, else the launcher's of a rank") {
  const std::string killed =
      "epoch 1 iteration 5 loss 2.2\n"
      "srun: error: n2: task 1: Killed\n"
      "srun: Terminating StepId=7.1\n"
      "slurmstepd: error: *** STEP 7.1 ON n1 CANCELLED ***\n"
      "srun: error: n1: task 0: Terminated\n";
  CHECK(last_error(killed, "gradsync-train") == "srun: error: n2: task 1: Killed");
  const std::string noticed =
      "mpirun noticed that process rank 1 with PID 7 on node vm exited on signal 9 (Killed).";
  CHECK(last_error("----\n" + noticed + "\n----\n", "gradsync-train") == noticed);
  for (const std::string line :
       {"=   KILLED BY SIGNAL: 9 (Killed)",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"})
    CHECK(last_error("===\n" + line + "\n===\nThis\nPlease\n", "gradsync-train") == line);
  CHECK(last_error("gradsync-train: no data\n  fix: make data\n" + killed, "gradsync-train") ==
        "no data\nfix: make data");
  CHECK(last_error("a\nb\n\nc\nd\n", "gradsync-train") == "b\nc\nd");
  // Words of one launcher alone tell of no rank.
  CHECK(last_error("srun: error: no room\nepoch 1: task 0\nb\nc\nd\n", "gradsync-train") ==
        "b\nc\nd");
  CHECK(last_error("", "gradsync-train").empty());
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
