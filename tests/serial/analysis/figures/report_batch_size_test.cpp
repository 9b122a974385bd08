// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/run_group.h"
#include "analysis/output/page.h"
#include "analysis/plots/plots.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

TEST_CASE("tables: iterations of an epoch follow the sampler") {
  CHECK(iterations_by_rule(50000, 4, 64, 1, true) == 196);  // 12,500 / 64 = 195.3
  CHECK(iterations_by_rule(50000, 4, 64, 1, false) == 195);
  CHECK(iterations_by_rule(50000, 4, 64, 2, true) == 98);
  CHECK(iterations_by_rule(50000, 3, 128, 1, true) == 131);  // 16,667 / 128 = 130.2
  CHECK(iterations_by_rule(50000, 1, 65536, 1, true) == 1);
  CHECK(iterations_by_rule(50000, 1, 65536, 1, false) == 0);
  CHECK(is_full_batch(50000, 50000));
  CHECK_FALSE(is_full_batch(49999, 50000));
  CHECK_FALSE(is_full_batch(64, 0));  // not known
}

TEST_CASE("tables: a whole epoch of a data set that no run names is what the run has seen") {
  const RunFolder folder;
  write_sample(folder / "run.h5", {"ddp", 2, 12, 5, 32, 2});
  CHECK(iterations_of_whole_epoch(loaded_with_failures(folder).runs[0]) == 5);
}

TEST_CASE("tables: a batch of one image per rank follows the sampler, too") {
  const RunFolder folder;
  write_changed(folder / "run.h5", {"ddp", 2, 12, 5, 1, 2}, {}, {{"train_images", "20"}});
  CHECK(iterations_of_whole_epoch(loaded_with_failures(folder).runs[0]) == 10);
}

TEST_CASE(
    "tables: an epoch of an experiment is cut off where the job ended early, without a limit") {
  const RunFolder folder;
  RunInfo info = sample_info({"ddp", 2, 12, 5, 32, 2});
  info.experiment = {{"id", "1"}, {"contender", "ddp"}, {"contenders", "none,ddp"}};
  for (const char* images : {"640", ""}) {
    CAPTURE(images);
    RunInfo one = info;
    if (*images) one.provenance.push_back({"train_images", images});
    auto&& recorder = recorder_of(folder / "run.h5", one);
    const SampleShape shape{"ddp", 2, 12, 5, 32, 2};
    for (std::size_t i = 0; i < shape.iterations; ++i)
      recorder.add(sample_row(shape, i));
    recorder.add(sample_epoch(shape, 0));
    recorder.finish(RunStatus::kComplete);
    CHECK_FALSE(epoch_figures(loaded_with_failures(folder).runs[0])[0].whole);
  }
}

TEST_CASE("tables: epochs, whole and cut off") {
  const RunFolder folder;
  // 640 images over 2 ranks of 32: 10 iterations a whole epoch, of which the sample has 5.
  write_changed(folder / "cut.h5", {}, {{"iterations", "12", "command line"}},
                {{"train_images", "640"}});
  const RunSet set = loaded_with_failures(folder);
  const auto epochs = epoch_figures(set.runs[0]);
  REQUIRE(epochs.size() == 2);
  CHECK_FALSE(epochs[0].whole);
  CHECK(epochs[0].samples == 320);
  CHECK(epochs[0].running_s == 0.0625);
  CHECK(epochs[0].images_per_s() == Approx(5120));
  // Iterations 2, 3, 4 are not warm-up: mean 10 + 0.3 + 1 ms.
  CHECK(epochs[0].extrapolated_s == Approx(0.113));
  CHECK(epochs[1].extrapolated_s == Approx(0.117));
  const Table table = make_batch_size_table(set, {});
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 0, "running_s") == "0.06250");  // nothing scaled
  CHECK(shown(table, 0, "extrapolated_s") == "0.1130");
  CHECK(contains(shown(table, 0, "remark"), "cut off: time of 5 of 10 iterations"));
  CHECK(contains(shown(table, 0, "remark"), "first epoch: warm-up"));
  CHECK(shown(table, 1, "train_accuracy_percent") == "38.00");  // 0.25 + 0.125 + 0.01·½
}

TEST_CASE("tables: an epoch of local-sgd is extrapolated from as many exchanges as it has") {
  // The steady iterations of its second epoch are less than a period of four, 10 to 12 or none, so
  // the run's count.
  for (const std::size_t iterations : {13, 11}) {
    CAPTURE(iterations);
    const RunFolder folder;
    const SampleShape shape{"local-sgd", 2, iterations, 10, 32, 1};
    RunInfo info = sample_info(shape);
    info.config.push_back({"local-steps", "4", "command line"});
    info.config.push_back({"iterations", std::to_string(iterations), "command line"});
    info.provenance.push_back({"train_images", "640"});
    auto&& recorder = recorder_of(folder / "run.h5", info);
    for (std::size_t i = 0; i < iterations; ++i) {
      IterationRow row = sample_row(shape, i);
      for (RankIteration& rank : row.ranks)
        rank[Phase::kIteration] = i % 4 == 3 ? 0.050 : 0.010;
      recorder.add(row);
    }
    recorder.add(sample_epoch(shape, 0));
    EpochRow second = sample_epoch(shape, 1);
    second.iterations = static_cast<std::int64_t>(iterations) - 10;
    recorder.add(second);
    recorder.finish(RunStatus::kComplete);
    const RunSet set = loaded_with_failures(folder);
    CHECK(epoch_figures(set.runs[0]).at(1).extrapolated_s == Approx(10 * 0.020));
  }
}

TEST_CASE("tables: an epoch that one repeat was cut off in is that of the others") {
  const RunFolder folder;
  // The first run has 3 of the 5 iterations of an epoch, when the others of its job had all.
  for (const std::size_t iterations : {3, 5}) {
    const SampleShape shape{"ddp", 2, iterations, iterations, 32, 2};
    write_changed(folder / fmt::format("{}.h5", iterations), shape,
                  {{"iterations", "5", "command line"}}, {{"train_images", "320"}});
  }
  const Table table = make_batch_size_table(loaded_with_failures(folder), {});
  CHECK(shown(table, 0, "iterations") == "5");
  CHECK(shown(table, 0, "remark") == "first epoch: warm-up");
}

TEST_CASE("tables: batch-size keeps the first epoch apart and flags a full batch") {
  const RunFolder folder;
  write_changed(folder / "a.h5", {"ddp", 2, 20, 5, 32, 1}, {}, {{"train_images", "320"}});
  write_changed(folder / "b.h5", {"ddp", 2, 3, 1, 512, 1}, {}, {{"train_images", "320"}});
  const Table table = make_batch_size_table(loaded_with_failures(folder), {});
  const std::size_t later = row_with(table, {{"run", "a"}, {"epoch", "mean 2-4"}});
  CHECK(number(table, later, "running_s") == 0.0625);
  CHECK(shown(table, later, "train_loss") == "-");
  CHECK(shown(table, row_with(table, {{"run", "a"}, {"epoch", "1"}}), "remark") ==
        "first epoch: warm-up");
  const std::size_t full = row_with(table, {{"run", "b"}, {"epoch", "2"}});
  CHECK(contains(shown(table, full, "remark"), "full batch: one step over all 320 images"));
}

TEST_CASE("tables: the mean over later epochs names those that are in it") {
  const RunFolder folder;
  const SampleShape shape{"ddp", 2, 18, 5, 32, 1};
  RunInfo info = sample_info(shape);
  info.config.push_back({"iterations", "18", "command line"});
  info.provenance.push_back({"train_images", "320"});
  auto&& recorder = recorder_of(folder / "run.h5", info);
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    recorder.add(sample_row(shape, i));
    if ((i + 1) % 5 == 0) recorder.add(sample_epoch(shape, i / 5));
  }
  EpochRow cut_off = sample_epoch(shape, 3);
  cut_off.iterations = 3;
  recorder.add(cut_off);
  recorder.finish(RunStatus::kComplete);
  const Table table = make_batch_size_table(loaded_with_failures(folder), {});
  const std::size_t mean = row_with(table, {{"epoch", "mean 2-3"}});
  CHECK(shown(table, mean, "remark") == "without the first, 2 epochs");
}

TEST_CASE("tables: a cell that ran out of memory is a row with that status") {
  const TestFolder folder;
  write_sample(folder / "lenet-ddp-r2.h5", {"ddp", 2});
  write_plainly(folder / "grid.json",
                R"({"schema":"gradsync-grid/1","cells":[{"name":"big","ranks":2,"repeat":1,
                   "options":{"sync":"ddp","model":"lenet","batch-per-rank":"8192"}}]})");
  write_plainly(folder / "big.failed.json",
                R"({"cell":"big","exit_code":81,"message":"out of memory on rank 1\nfix: less"})");
  write_plainly(folder / "odd.failed.json", R"({"exit_code":86,"message":"hang"})");
  write_plainly(folder / "bad.failed.json", "{\"exit_code\": 81, \"mess");
  write_plainly(folder / "skip.failed.json",
                R"({"kind":"not run","exit_code":-1,"message":"not run: batch 8 is too large"})");
  write_plainly(folder / "slain.failed.json",
                R"({"kind":"out of memory","exit_code":137,"message":"killed"})");
  { const Recorder begun(folder / "big.h5", sample_info({"ddp", 2})); }
  REQUIRE(std::filesystem::exists(folder / "big.h5.journal"));
  const RunSet set = loaded_with_failures(folder);
  CHECK(set.runs.size() == 1);  // what it left before its first iteration is no run
  REQUIRE(set.failed.size() == 4);
  CHECK(set.failed[0].out_of_memory());
  CHECK(set.failed[0].batch_global == 16384);
  CHECK(set.failed[0].message == "out of memory on rank 1");
  REQUIRE(set.remarks.size() == 1);
  CHECK(contains(set.remarks[0], "bad.failed.json"));
  const Table table = make_batch_size_table(set, {});
  const std::size_t row = row_with(table, {{"batch_per_rank", "8192"}});
  CHECK(shown(table, row, "remark") == "OUT OF MEMORY (exit code 81)");
  CHECK(shown(table, row, "running_s") == "n/a");
  CHECK(shown(table, row, "mode") == "ddp");
  CHECK(row == row_with(table, {{"batch_per_rank", "32"}, {"epoch", "2"}}) + 1);  // in its place
  const std::size_t odd = row_with(table, {{"run", "odd"}});
  CHECK(shown(table, odd, "mode") == "?");
  CHECK(shown(table, odd, "remark") == "FAILED (exit code 86): hang");
  const auto remark_of = [&](const char* cell) {
    return shown(table, row_with(table, {{"run", cell}}), "remark");
  };
  CHECK(remark_of("skip") == "not run: batch 8 is too large");
  CHECK(remark_of("slain") == "OUT OF MEMORY (exit code 137)");
}

TEST_CASE("tables: a folder of failed cells only says how each of them failed") {
  const TestFolder folder;
  write_plainly(folder / "big.failed.json", R"({"exit_code":81,"message":"out of memory"})");
  write_plainly(folder / "odd.failed.json", R"({"exit_code":86,"message":"hang on rank 3"})");
  const auto refuse = [](const std::filesystem::path& place) {
    return error_text(ExitCode::kBadData, [&] { load_places({place.string()}); });
  };
  write_plainly(folder / "next.failed.json",
                R"({"kind":"not run","message":"not run: too large"})");
  const std::string text = refuse(folder.path());
  CHECK(contains(text, "all 3 cells failed or were not run"));
  CHECK(contains(text, "big: OUT OF MEMORY (exit code 81)"));
  CHECK(contains(text, "next: not run: too large"));
  CHECK(contains(text, "odd: FAILED (exit code 86): hang on rank 3"));
  CHECK(contains(refuse(folder / "odd.failed.json"), "the only cell failed"));
  for (int i = 0; i < 40; ++i)
    write_plainly(folder / ("c" + std::to_string(i) + ".failed.json"), R"({"exit_code":69})");
  CHECK(contains(refuse(folder.path()), "and 23 more"));
  const TestFolder empty;
  error_text(ExitCode::kNoInput, [&] { load_places({empty.path().string()}); });
}

TEST_CASE("tables: damaged records of failures never crash") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const std::vector<std::string> texts = {"",
                                          "[]",
                                          "7",
                                          "{}",
                                          R"({"exit_code":"x"})",
                                          R"({"exit_code":1e99})",
                                          R"({"exit_code":81,"message":7})"};
  for (std::size_t i = 0; i < texts.size(); ++i)
    write_plainly(folder / ("c" + std::to_string(i) + ".failed.json"), texts[i]);
  for (const char* grid : {"", "[]", "{\"cells\":7}", "{\"cells\":[7,{\"name\":1}]}",
                           R"({"cells":[{"name":"c3","ranks":-5,"options":7}]})",
                           R"({"cells":[{"name":"c3","ranks":9223372036854775807,
                              "options":{"batch-per-rank":"9223372036854775807",
                              "accumulate":"99999999999"}}]})"}) {
    write_plainly(folder / "grid.json", grid);
    CHECK(make_batch_size_table(loaded_with_failures(folder), {}).rows.size() == 6);
  }
}

namespace {

/// A run of 640 images on 2 ranks whose batch grows from 32 to 128 with its second epoch: 20
/// iterations, then 5 an epoch, all of 10 ms; `limit` ends it in an epoch or behind one.
void write_scheduled(const RunFolder::File& path, std::int64_t iterations, bool limit,
                     const std::string& schedule = "0:32,1:128", std::size_t ranks = 2) {
  RunInfo info = sample_info({"ddp", ranks, 1, 1, 32 / static_cast<std::int64_t>(ranks), 2});
  info.config.push_back({"batch-schedule", schedule, "command line"});
  if (limit) info.config.push_back({"iterations", std::to_string(iterations), "command line"});
  info.provenance.push_back({"train_images", "640"});
  info.provenance.push_back({"epoch_iterations", "20"});
  auto&& recorder = recorder_of(path, info);
  std::int64_t in_epoch = 0, epoch = 0;
  for (std::int64_t i = 0; i < iterations; ++i) {
    IterationRow row = sample_row({"ddp", ranks, 1, 1000, 32, 2}, static_cast<std::size_t>(i));
    row.epoch = epoch;
    row.samples = epoch == 0 ? 32 : 128;
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] = 0.010;
    recorder.add(row);
    const bool last_of_epoch = ++in_epoch == (epoch == 0 ? 20 : 5);
    if (!last_of_epoch && i + 1 < iterations) continue;
    EpochRow end = sample_epoch({"ddp", ranks, 1, 1, 32, 2}, static_cast<std::size_t>(epoch++));
    end.iterations = in_epoch;
    recorder.add(end);
    in_epoch = 0;
  }
  recorder.finish(RunStatus::kComplete);
}

}  // namespace

TEST_CASE("batch schedule: an epoch is whole by the plan of its own batch") {
  const RunFolder folder;
  write_scheduled(folder / "a.h5", 28, true);  // 20, 5 and 3 of 5
  const RunSet set = loaded_with_failures(folder);
  const auto epochs = epoch_figures(set.runs[0]);
  REQUIRE(epochs.size() == 3);
  CHECK(epochs[0].whole);
  CHECK(epochs[1].whole);
  CHECK(std::isnan(epochs[1].extrapolated_s));
  CHECK_FALSE(epochs[2].whole);
  CHECK(epochs[2].extrapolated_s == Approx(0.050));
  CHECK(iterations_of_whole_epoch(set.runs[0], 1) == 5);
  CHECK(iterations_of_whole_epoch(set.runs[0]) == 0);  // epochs differ
  const Table table = make_batch_size_table(set, {});
  CHECK(contains(shown(table, 2, "remark"), "cut off: time of 3 of 5 iterations"));
  for (const auto& row : table.rows)
    CHECK_FALSE(contains(row[column_of(table, "epoch")].text, "mean"));  // of different batches
}

TEST_CASE("batch schedule: a pass that accumulation leaves over is an iteration of the epoch") {
  const RunFolder folder;
  RunInfo info = sample_info({"ddp", 2, 5, 5, 64, 2});
  info.config.push_back({"batch-schedule", "0:256,1:512", "command line"});
  info.config.push_back({"accumulate", "2", "command line"});
  info.provenance = {{"train_images", "640"}, {"epoch_iterations", "3"}};
  auto&& recorder = recorder_of(folder / "a.h5", info);
  record_sample(recorder, {"ddp", 2, 5, 5, 64, 2});
  recorder.finish(RunStatus::kComplete);
  const RunSet set = loaded_with_failures(folder);
  // 5 passes of 64 images a rank: 2, 2 and 1; 3 passes of 128: 2 and 1.
  CHECK(iterations_of_whole_epoch(set.runs[0], 0) == 3);
  CHECK(iterations_of_whole_epoch(set.runs[0], 1) == 2);
}

TEST_CASE("batch schedule: a rate is that of all images, with the schedule as its name") {
  const RunFolder folder;
  write_scheduled(folder / "a.h5", 40, false);
  const RunSet set = loaded_with_failures(folder);
  const auto groups = group_runs(set);
  const std::size_t first = set.runs[0].steady.by_rule;  // 18 of 20 iterations of 32 are steady
  REQUIRE(set.runs[0].steady.kept() == 40 - first);
  const double images =
      (32.0 * static_cast<double>(20 - first) + 128 * 20) / static_cast<double>(40 - first);
  CHECK(steady_images(groups[0]) == Approx(images));
  CHECK(images_per_s(groups[0]).value == Approx(images / 0.010));
  CHECK_FALSE(images_per_s(groups[0]).has_interval());
  const auto foms = figures_of_merit(groups);
  CHECK(foms[1].name == "images_per_s.lenet.ddp.n2.batch-schedule=0:32,1:128");
  CHECK(foms[1].value == Approx(images / 0.010));
  CHECK(contains(key_figures(set), fmt::format(">{:.0f}</span>", images / 0.010)));
  CHECK(contains(key_figures(set), "batch schedule 0:32,1:128"));
}

TEST_CASE("batch schedule: such runs scale against nothing, and a remark names them") {
  const RunFolder folder;
  write_scheduled(folder / "n1.h5", 40, false, "0:32,1:128", 1);
  write_scheduled(folder / "n2.h5", 40, false);
  write_sample(folder / "plain.h5", {"none", 1, 12, 5, 32, 2});
  const RunSet set = loaded_with_failures(folder);
  const auto groups = group_runs(set);
  for (const Comparison& one : comparisons(groups))
    CHECK(batch_schedule(one.group->first()).empty());
  CHECK_FALSE(make_speedup_plot(set));
  const Table prediction = make_prediction_table(set, {});
  for (const auto& row : prediction.rows)
    CHECK(row[column_of(prediction, "mode")].text == "none");
  const Table fit = make_model_fit_table(set, {});
  for (const auto& row : fit.rows)
    CHECK(row[column_of(fit, "mode")].text == "none");
  CHECK(std::count_if(set.remarks.begin(), set.remarks.end(), [](const std::string& remark) {
          return contains(remark, "--batch-schedule changes the batch within n1, n2");
        }) == 1);
}

TEST_CASE("batch schedule: no mode is called the fastest of work that differs") {
  const RunFolder folder;
  write_scheduled(folder / "a.h5", 40, false);
  write_sample(folder / "b.h5", {"allreduce", 2, 12, 5, 16, 2});
  const Table table = make_summary_table(loaded_with_failures(folder), {});
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 0, "to_fastest") == "1.00");
  CHECK(shown(table, 1, "to_fastest") == "1.00");
}

TEST_CASE("images per second: the last, smaller batch of an epoch changes nothing") {
  const RunFolder folder;
  write_changed(folder / "a.h5", {"ddp", 2, 12, 5, 32, 2}, {}, {}, [](IterationRow& row) {
    if (row.iteration % 5 == 4) row.samples = 10;
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] = 0.010;
  });
  const RunSet set = loaded_with_failures(folder);
  CHECK(images_per_s(group_runs(set)[0]).value == Approx(6400));
  const RunFolder unknown;
  write_changed(unknown / "a.h5", {"ddp", 2, 12, 5, 32, 2}, {}, {},
                [](IterationRow& row) { row.samples = 0; });  // as of a trace without its batch
  CHECK(std::isnan(images_per_s(group_runs(loaded_with_failures(unknown))[0]).value));
}
