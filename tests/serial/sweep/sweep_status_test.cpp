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

  CHECK(status_table("test", cells).rows[0][0].number == 1);
  const std::string text = shown(status_table("test", cells));
  for (const char* part :
       {"Grid test", "100 of 100", "10 of 50", "by host ", "5 of 10", "no checkpoint: starts again",
        "1 of 5 cells done, 1 missing, 1 running, 1 partial, 1 failed", "about 12 s left"})
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
  CHECK(shown(status_table("test", before)).find("time left: unknown") != std::string::npos);

  sweep.run();  // writes "run" for run files
  const auto after = grid_progress(sweep.grid.cells, sweep.runs());
  CHECK(after[0].state == CellState::kDone);
  CHECK(after[0].message.find("lenet-ddp-r1-b1.h5") != std::string::npos);
  CHECK(after[0].iterations == 0);
}
