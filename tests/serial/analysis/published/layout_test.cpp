// SPDX-License-Identifier: BSD-3-Clause
// The tables of a published report in its own layout, with measured numbers: gradsync-report --as.

#include "analysis/published/layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/published/numbers.h"
#include "base/file.h"
#include "base/parse.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::report::published;
using gradsync::testing::MadeRun;

namespace {

/// A run of 12 iterations of 10 ms compute and `exposed_s`, and two epochs of so many seconds.
gradsync::testing::StudyRun with_epochs(const std::string& mode, std::size_t ranks,
                                        double exposed_s, const std::string& epoch_iterations,
                                        double epoch_s, const std::string& limit = "0") {
  gradsync::testing::StudyRun run{mode, ranks, 50, 0.010, exposed_s};
  run.change = [ranks](IterationRow& row) {
    if (ranks < 2) return;
    row.buckets.push_back({4'000'000, CollectiveKind::kAllReduce});
    for (RankIteration& rank : row.ranks)
      rank.buckets.push_back({0.010, 0.010, 0.014});
  };
  run.change_info = [=](RunInfo& info) {
    info.provenance.push_back({"epoch_iterations", epoch_iterations});
    info.provenance.push_back({"train_images", "50000"});
    info.config.push_back({"iterations", limit, "command line"});
  };
  run.add_more = [=](MadeRun& recorder) {
    for (const std::size_t epoch : {std::size_t{0}, std::size_t{1}}) {
      EpochRow row = gradsync::testing::sample_epoch({mode, ranks, 12, 12}, epoch);
      if (limit != "0" && epoch > 0) continue;
      for (RankEpoch& rank : row.ranks) {
        rank.training_time_s = 0.9 * epoch_s;
        rank.running_time_s = epoch == 0 ? 2 * epoch_s : epoch_s;
      }
      recorder.add(row);
    }
  };
  return run;
}

const char* const kLayout = R"({"published": "paper.csv", "report": "r", "compute": "whole-epoch",
  "bandwidth": "message", "tables": [
    {"name": "speedup", "of": ["t"], "rows": ["quantity"], "columns": ["devices"],
     "quantities": ["epoch_time", "epoch_time in ms/iteration", "speedup", "comm_time", "bandwidth",
                    "epoch_2_loss"]}]})";

std::string with_layout(const std::string& from, const std::string& to) {
  std::string text = kLayout;
  return text.replace(text.find(from), from.size(), to);
}

struct LayoutWorld {
  TestFolder folder;

  /// Numbers of the report: lines of its CSV behind the first.
  void prints(const std::string& lines) const {
    gradsync::testing::write_plainly(
        folder / "paper.csv",
        "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n" + lines);
  }

  LayoutWorld() {
    prints(
        "r,t,lenet,single,1,50,epoch_time,50.0,s\nr,t,lenet,ddp,2,50,epoch_time,30.0,s\n"
        "r,t,lenet,ddp,2,50,speedup,1.60,1\nr,t,lenet,ddp,2,50,comm_time,4.00,s\n"
        "r,t,lenet,ddp,2,50,bandwidth,1.0,MB/s\nr,t,lenet,ddp,4,50,speedup,3.1,1\n");
    gradsync::testing::write_study(folder / "one.h5", with_epochs("none", 1, 0, "1000", 100));
  }
  Table table(const std::string& text = kLayout) const {
    const RunSet set = gradsync::testing::loaded(folder);
    return tables_as_published(parse_layout(text, "l.json", folder.path()), set).front();
  }
  std::string refused(const std::string& text) const {
    return error_text(ExitCode::kBadData, [&] { table(text); });
  }
};

/// The number of the row "speedup" in a column.
double in_row(const Table& table, const std::string& quantity, const std::string& column) {
  for (const auto& row : table.rows)
    if (row.front().text == quantity)
      return row[gradsync::testing::column_of(table, column)].number;
  FAIL_CHECK("no row " << quantity);
  return NAN;
}

}  // namespace

TEST_CASE("layout: published, measured by the report's conventions, and their ratio") {
  const LayoutWorld world;
  gradsync::testing::write_study(world.folder / "two.h5", with_epochs("ddp", 2, 0.004, "500", 60));
  const Table table = world.table();
  CHECK(table.name == "l-speedup");
  CHECK(in_row(table, "epoch_time s", "devices_2_published") == 30);
  CHECK(in_row(table, "epoch_time s", "devices_2_measured") == 60);  // of the second epoch
  CHECK(in_row(table, "epoch_time s", "devices_2_ratio") == 2);
  // 30 s of 500 iterations, 100 s of 1,000.
  CHECK(in_row(table, "epoch_time ms/iteration", "devices_2_published") == doctest::Approx(60));
  CHECK(in_row(table, "epoch_time ms/iteration", "devices_1_measured") == doctest::Approx(100));
  CHECK(in_row(table, "speedup", "devices_2_measured") == doctest::Approx(100.0 / 60));
  CHECK(in_row(table, "comm_time s", "devices_2_measured") == doctest::Approx(2));     // 500 x 4 ms
  CHECK(in_row(table, "bandwidth MB/s", "devices_2_measured") == doctest::Approx(2));  // 4 MB / 2 s
  CHECK(in_row(table, "epoch_2_loss", "devices_2_measured") == doctest::Approx(1.9));
  CHECK(std::isnan(in_row(table, "epoch_2_loss", "devices_2_published")));
  CHECK(in_row(table, "speedup", "devices_4_published") == doctest::Approx(3.1));
  CHECK(std::isnan(in_row(table, "speedup", "devices_4_measured")));
  CHECK(contains(gradsync::testing::all_notes(table), "bandwidth: message, S / communication"));
  CHECK(contains(gradsync::testing::all_notes(table),
                 "communication without waiting for a late rank"));
  CHECK_FALSE(contains(gradsync::testing::all_notes(table), "extrapolated"));
  // Another batch, which no axis of this table shows, does not stand beside published numbers.
  gradsync::testing::StudyRun other = with_epochs("ddp", 4, 0.004, "250", 40);
  other.batch_per_rank = 8;
  gradsync::testing::write_study(world.folder / "four.h5", other);
  CHECK(std::isnan(in_row(world.table(), "speedup", "devices_4_measured")));

  const auto derived = [&](const std::string& key) {
    return world.table(with_layout("\"compute\": \"whole-epoch\"", key));
  };
  CHECK(in_row(derived(R"("communication": "derived")"), "comm_time s", "devices_2_measured") ==
        doctest::Approx(60 - 100.0 / 2));
  CHECK(in_row(derived(R"("speedup": "weak-speedup")"), "speedup", "devices_2_measured") ==
        doctest::Approx(2 * 100.0 / 60));
  CHECK(in_row(derived(R"("clock": "training")"), "epoch_time s", "devices_2_measured") ==
        doctest::Approx(54));
  // Each device takes all images: 1,000 iterations on two as well.
  CHECK(in_row(derived(R"("images": "each")"), "epoch_time s", "devices_2_measured") ==
        doctest::Approx(120));
}

TEST_CASE("layout: a time in another setting than the first one is marked") {
  for (const char* precision : {"bf16", "fp32"}) {
    const LayoutWorld world;
    gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "500", 60);
    two.change_info = [before = two.change_info, precision](RunInfo& info) {
      if (before) before(info);
      std::erase_if(info.config,
                    [](const ConfigEntry& entry) { return entry.name == "precision"; });
      info.config.push_back({"precision", precision, "command line"});
    };
    gradsync::testing::write_study(world.folder / "two.h5", two);
    const std::string remark = gradsync::testing::shown(world.table(), 0, "remark");
    CHECK_MESSAGE(contains(remark, "not as the first time here: precision") ==
                      (precision == std::string("bf16")),
                  remark);
  }
}

TEST_CASE("layout: an epoch that was cut off is extrapolated and marked") {
  const LayoutWorld world;
  gradsync::testing::write_study(world.folder / "two.h5",
                                 with_epochs("ddp", 2, 0.004, "500", 60, "12"));
  const Table table = world.table();
  CHECK(in_row(table, "epoch_time s", "devices_2_measured") == doctest::Approx(500 * 0.014));
  CHECK(contains(gradsync::testing::shown(table, 0, "remark"), "2: extrapolated"));
  CHECK(contains(gradsync::testing::all_notes(table), "no such epoch was run whole"));
}

TEST_CASE("layout: training time is without loading, extrapolated as well") {
  const LayoutWorld world;
  gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "500", 60, "12");
  two.other_s = 0.003;
  two.change = [before = two.change](IterationRow& row) {
    before(row);
    row.ranks[0][Phase::kData] = 0.002;
    row.ranks[1][Phase::kData] = 0.003;
  };
  gradsync::testing::write_study(world.folder / "two.h5", two);
  const auto of = [&](const std::string& quantity) {
    std::string text = with_layout("\"speedup\", \"comm_time\"", '"' + quantity + '"');
    return in_row(world.table(text), quantity + " s", "devices_2_measured");
  };
  CHECK(of("running_time") == doctest::Approx(500 * 0.017));
  CHECK(of("training_time") == doctest::Approx(500 * 0.015));  // of the slowest rank
  // An epoch of a number: the first as far as it was run, and the rest of it steady.
  CHECK(of("epoch_1_running_time") == doctest::Approx(120 + (500 - 12) * 0.017));
  CHECK(of("epoch_1_training_time") == doctest::Approx(54 + (500 - 12) * 0.015));
  CHECK(of("epoch_5_training_time") == doctest::Approx(500 * 0.015));
}

TEST_CASE("layout: the first epoch is never a later one") {
  const LayoutWorld world;
  // One whole epoch of 12 iterations with a slow first one, and no other.
  gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "12", 60);
  two.add_more = [](MadeRun& recorder) {
    EpochRow row = gradsync::testing::sample_epoch({"ddp", 2, 12, 12}, 0);
    for (RankEpoch& rank : row.ranks)
      rank.training_time_s = rank.running_time_s = 7;
    recorder.add(row);
  };
  gradsync::testing::write_study(world.folder / "two.h5", two);
  const Table table =
      world.table(with_layout("\"speedup\", \"comm_time\"", "\"epoch_1_time\", \"epoch_2_time\""));
  CHECK(in_row(table, "epoch_time s", "devices_2_measured") == doctest::Approx(12 * 0.014));
  CHECK(in_row(table, "epoch_1_time s", "devices_2_measured") == doctest::Approx(7));
  CHECK(in_row(table, "epoch_2_time s", "devices_2_measured") == doctest::Approx(12 * 0.014));
  CHECK(contains(gradsync::testing::shown(table, 0, "remark"), "2: extrapolated"));
}

TEST_CASE("layout: measured numbers that cannot be, and what never became steady, are marked") {
  const LayoutWorld world;
  // T(1) = 100 s and T(2) = 40 s: a speedup of 2.5, and 40 - 50 = -10 s of communication.
  gradsync::testing::write_study(world.folder / "two.h5", with_epochs("ddp", 2, 0.004, "500", 40));
  std::string text = with_layout("\"compute\": \"whole-epoch\"", R"("communication": "derived")");
  const Table table = world.table(text);
  CHECK(in_row(table, "comm_time s", "devices_2_measured") == doctest::Approx(-10));
  CHECK(contains(gradsync::testing::all_notes(table),
                 "measured numbers that would be called impossible in a report"));
  for (const auto& row : table.rows) {
    const std::string& quantity = row.front().text;
    const std::string& remark = row.back().text;
    CHECK_MESSAGE(contains(remark, "2: impossible: super-linear") == (quantity == "speedup"),
                  remark);
    CHECK_MESSAGE(contains(remark, "impossible: below zero") == (quantity == "comm_time s"),
                  remark);
  }

  // 60 iterations that take longer and longer, of an epoch of 500.
  std::filesystem::remove(world.folder / "two.h5");
  gradsync::testing::StudyRun slower = with_epochs("ddp", 2, 0.004, "500", 60, "60");
  slower.iterations = 60;
  slower.change = [before = slower.change](IterationRow& row) {
    before(row);
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] += 0.001 * static_cast<double>(row.iteration);
  };
  gradsync::testing::write_study(world.folder / "two.h5", slower);
  const Table restless = world.table();
  CHECK(contains(gradsync::testing::shown(restless, 0, "remark"),
                 "2: extrapolated; 2: never became steady"));
  CHECK(contains(gradsync::testing::all_notes(restless), "remark never became steady"));
}

TEST_CASE("layout: rows and columns are those in which the report prints a number") {
  const LayoutWorld world;
  const std::string report =
      R"({"published": "paper.csv", "report": "r", "plots": ["loss"], "tables": [
    {"name": "weak", "of": ["t"], "rows": ["batch_per_device", "value"],
     "columns": ["devices", "quantity"], "quantities": ["epoch_time", "speedup"]}]})";
  world.prints("r,t,lenet,single,1,50,epoch_time,50.0,s\nr,t,lenet,ddp,2,50,speedup,1.60,1\n");
  gradsync::testing::write_study(world.folder / "two.h5", with_epochs("ddp", 2, 0.004, "500", 60));
  gradsync::testing::StudyRun other = with_epochs("ddp", 2, 0.004, "250", 60);
  other.batch_per_rank = 100;
  gradsync::testing::write_study(world.folder / "other.h5", other);
  const Table table = world.table(report);
  std::vector<std::string> columns;
  for (const Column& column : table.columns)
    columns.push_back(column.name);
  CHECK(columns == std::vector<std::string>{"batch_per_device", "value", "devices_1_epoch_time_s",
                                            "devices_2_speedup", "remark"});
  CHECK(table.rows.size() == 3);  // published, measured, ratio of batch 50
  CHECK(contains(gradsync::testing::all_notes(table),
                 "not in the report, so not here: ddp on 2 ranks at batch 100"));
  CHECK(parse_layout(report, "l.json", "").plots == std::vector<std::string>{"loss"});
  CHECK_FALSE(parse_layout(kLayout, "l.json", "").plots);
}

TEST_CASE("layout: what the published file does not give is n/a") {
  const LayoutWorld world;
  world.prints(
      "r,t,lenet,single,1,50,epoch_time,50.0,s\nr,t,lenet,ddp,2,,epoch_time,42.0,s\n"
      "r,t,lenet,ddp,,50,epoch_time,43.0,s\n");
  const Table table = world.table();
  CHECK(std::isnan(in_row(table, "epoch_time ms/iteration", "devices_2_published")));
  CHECK(std::isnan(in_row(table, "epoch_time ms/iteration", "devices___published")));
  CHECK(in_row(table, "epoch_time s", "devices___published") == 43);
}

TEST_CASE("layout: one device has a bandwidth of a message, and no other table's numbers") {
  const LayoutWorld world;
  world.prints("r,t,lenet,single,1,50,comm_time,2.0,s\nr,t,lenet,single,1,50,bandwidth,2.0,MB/s\n");
  gradsync::testing::StudyRun alone = with_epochs("ddp", 1, 0.004, "1000", 100);
  alone.change = [](IterationRow& row) {
    row.buckets.push_back({4'000'000, CollectiveKind::kAllReduce});
    row.ranks[0].buckets.push_back({0.010, 0.010, 0.014});
  };
  gradsync::testing::write_study(world.folder / "alone.h5", alone);
  const Table table = world.table();
  CHECK(in_row(table, "comm_time s", "devices_1_measured") == doctest::Approx(4));  // 1,000 x 4 ms
  CHECK(in_row(table, "bandwidth MB/s", "devices_1_measured") == doctest::Approx(1));
  const auto note = [&](const std::string& of) {
    return gradsync::testing::all_notes(world.table(with_layout(R"("of": ["t"])", of)));
  };
  CHECK(contains(note(R"("of": [])"),
                 "paper.csv has none of these numbers of r in the tables that the layout names"));
}

TEST_CASE("layout: a row of one rank shows that rank") {
  const LayoutWorld world;
  world.prints(
      "r,t,lenet,ddp:rank0,2,50,test_loss,2.5,1\nr,t,lenet,ddp:rank1,2,50,test_loss,2.6,1\n");
  gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "12", 60);
  two.add_more = [](MadeRun& recorder) {
    EpochRow row = gradsync::testing::sample_epoch({"ddp", 2, 12, 12}, 0);
    row.ranks[0].test_loss = 2;
    row.ranks[1].test_loss = 3;
    recorder.add(row);
  };
  gradsync::testing::write_study(world.folder / "two.h5", two);
  const Table table = world.table(R"({"published": "paper.csv", "report": "r", "tables": [
    {"name": "modes", "of": ["t"], "rows": ["mode"], "columns": ["value"],
     "quantities": ["test_loss"]}]})");
  CHECK(in_row(table, "ddp:rank0", "test_loss_measured") == doctest::Approx(2));
  CHECK(in_row(table, "ddp:rank1", "test_loss_measured") == doctest::Approx(3));
  CHECK(contains(gradsync::testing::all_notes(table), "of the rank that the row names"));
  CHECK_FALSE(contains(gradsync::testing::all_notes(table), "mean over ranks"));
}

TEST_CASE("layout: what was learnt is the mean of the repeats") {
  const LayoutWorld world;
  world.prints("r,t,lenet,ddp,2,50,test_loss,2.5,1\n");
  for (const double loss : {2.0, 3.5}) {
    gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "12", 60);
    two.add_more = [loss](MadeRun& recorder) {
      EpochRow row = gradsync::testing::sample_epoch({"ddp", 2, 12, 12}, 0);
      for (auto& rank : row.ranks)
        rank.test_loss = loss;
      recorder.add(row);
    };
    gradsync::testing::write_study(world.folder / fmt::format("{}.h5", loss), two);
  }
  const Table table = world.table(R"({"published": "paper.csv", "report": "r", "tables": [
    {"name": "modes", "of": ["t"], "rows": ["mode"], "columns": ["value"],
     "quantities": ["test_loss"]}]})");
  CHECK(in_row(table, "ddp", "test_loss_measured") == doctest::Approx(2.75));
}

TEST_CASE("layout: a speedup by another clock than the split beside it") {
  const LayoutWorld world;
  gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "500", 60);
  two.add_more = [](MadeRun& recorder) {
    for (const std::size_t epoch : {std::size_t{0}, std::size_t{1}}) {
      EpochRow row = gradsync::testing::sample_epoch({"ddp", 2, 12, 12}, epoch);
      for (RankEpoch& rank : row.ranks) {
        rank.training_time_s = 60;
        rank.running_time_s = 80;
      }
      recorder.add(row);
    }
  };
  gradsync::testing::write_study(world.folder / "two.h5", two);
  const auto speedup = [&](const std::string& clocks) {
    return in_row(world.table(with_layout("\"compute\"", clocks + "\"compute\"")), "speedup",
                  "devices_2_measured");
  };
  CHECK(speedup(R"("clock": "training", )") == doctest::Approx(90.0 / 60));
  CHECK(speedup(R"("clock": "training", "speedup_clock": "running", )") ==
        doctest::Approx(100.0 / 80));
  CHECK(speedup("") == doctest::Approx(100.0 / 80));
}

TEST_CASE("layout: loss and accuracy of more ranks than there are, by accumulation") {
  const LayoutWorld world;
  world.prints("r,t,lenet,ddp,4,50,epoch_2_accuracy,60.0,%\nr,t,lenet,ddp,4,50,epoch_time,9.0,s\n");
  const auto write = [&](const std::string& name, const std::string& remedy, double accuracy) {
    gradsync::testing::StudyRun run = with_epochs("none", 1, 0, "250", 100);
    run.change_info = [=, before = run.change_info](RunInfo& info) {
      before(info);
      info.config.push_back({"accumulate", "4", "command line"});
      for (auto& entry : info.config)
        if (entry.name == "batch-global") entry.value = "200";
      info.config.push_back({"lr-scaling", remedy, "command line"});
    };
    run.add_more = [=](MadeRun& recorder) {
      EpochRow row = gradsync::testing::sample_epoch({"none", 1, 12, 12}, 1);
      row.ranks[0].train_accuracy = accuracy;
      recorder.add(row);
    };
    gradsync::testing::write_study(world.folder / (name + ".h5"), run);
  };
  write("seed1", "none", 0.50);
  write("seed2", "none", 0.52);
  write("seed3", "none", 0.54);
  write("linear", "linear", 0.58);
  const std::string layout = R"({"published": "paper.csv", "report": "r", "tables": [
    {"name": "large", "of": ["t"], "rows": ["quantity"], "columns": ["devices"],
     "quantities": ["epoch_2_accuracy", "epoch_time"]}], "sentences": [
    {"topic": "remedy", "says": "a scaled rate helps", "left": "epoch_2_accuracy 4x50 with lr-scaling",
     "is": "above", "right": "epoch_2_accuracy 4x50"},
    {"topic": "time", "says": "short", "left": "epoch_time 4x50", "is": "below", "right": "1"}]})";
  const RunSet set = gradsync::testing::loaded(world.folder);
  const auto tables = tables_as_published(parse_layout(layout, "l.json", world.folder.path()), set);
  const Table& large = tables.front();
  CHECK(in_row(large, "epoch_2_accuracy %", "devices_4_measured") == doctest::Approx(52));
  CHECK(contains(large.rows[0].back().text, "1 rank x 50 images in 4 passes"));
  CHECK(contains(large.rows[0].back().text, "mean of 3 runs, 47.03 to 56.97"));
  // Its passes take the time of four ranks, and are not theirs.
  CHECK(std::isnan(in_row(large, "epoch_time s", "devices_4_measured")));
  CHECK(contains(large.rows[1].back().text, "needs 4 GPUs, or free cores for as many ranks"));

  const Table& sentences = tables.back();
  CHECK(sentences.name == "l-sentences");
  const auto said = [&](std::size_t row, const std::string& column) {
    return sentences.rows.at(row)[gradsync::testing::column_of(sentences, column)];
  };
  CHECK(said(0, "measured_ratio").number == doctest::Approx(58.0 / 52));
  CHECK(std::isnan(said(0, "report_ratio").number));
  CHECK(said(0, "judgement").text == "same side, no interval");
  CHECK(said(1, "judgement").text == "n/a");
  CHECK(contains(said(1, "remark").text, "the report's own numbers contradict it; needs 4 GPUs"));
}

TEST_CASE("layout: a run with a remedy stands for no plain one, and for one with that remedy") {
  const LayoutWorld world;
  world.prints("r,t,lenet,ddp,2,50,epoch_2_accuracy,55.0,%\n");
  const auto write = [&](const std::string& name, const std::string& remedy, double accuracy,
                         std::size_t epochs) {
    gradsync::testing::StudyRun run = with_epochs("ddp", 2, 0.001, "500", 60);
    run.change_info = [=, before = run.change_info](RunInfo& info) {
      before(info);
      info.config.push_back({"lr-scaling", remedy, "command line"});
    };
    run.add_more = [=](MadeRun& recorder) {
      for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
        EpochRow row = gradsync::testing::sample_epoch({"ddp", 2, 12, 12}, epoch);
        for (RankEpoch& rank : row.ranks)
          rank.train_accuracy = accuracy;
        recorder.add(row);
      }
    };
    gradsync::testing::write_study(world.folder / (name + ".h5"), run);
  };
  write("plain", "none", 0.50, 2);
  write("linear", "linear", 0.60, 3);
  const std::string layout = R"({"published": "paper.csv", "report": "r", "tables": [
    {"name": "speedup", "of": ["t"], "rows": ["quantity"], "columns": ["devices"],
     "quantities": ["epoch_2_accuracy"]}], "sentences": [
    {"topic": "remedy", "says": "a scaled rate helps", "left": "epoch_2_accuracy 2x50 with lr-scaling",
     "is": "above", "right": "epoch_2_accuracy 2x50"}]})";
  const RunSet set = gradsync::testing::loaded(world.folder);
  const auto tables = tables_as_published(parse_layout(layout, "l.json", world.folder.path()), set);
  const Table& sentences = tables.back();
  CHECK(sentences.rows.at(0)[gradsync::testing::column_of(sentences, "measured_ratio")].number ==
        doctest::Approx(0.60 / 0.50));
}

TEST_CASE("layout: a time of one rank is that of the same network and arithmetic") {
  for (const char* option : {"model", "precision"}) {
    const LayoutWorld world;
    gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0.004, "500", 60);
    two.change_info = [=, before = two.change_info](RunInfo& info) {
      before(info);
      std::erase_if(info.config, [=](const ConfigEntry& entry) { return entry.name == option; });
      info.config.push_back({option, option == std::string("model") ? "vgg11" : "bf16", "default"});
    };
    gradsync::testing::write_study(world.folder / "two.h5", two);
    CHECK(std::isnan(in_row(world.table(), "speedup", "devices_2_measured")));
  }
}

TEST_CASE("layout: two numbers of the same runs are set against each other within each") {
  const LayoutWorld world;
  world.prints("r,t,lenet,ddp,2,50,compute_time,5,s\nr,t,lenet,ddp,2,50,comm_time,4,s\n");
  TestFolder folder;
  // Starts differ by a factor, and in each of them compute takes a little longer than the rest.
  for (int i = 0; i < 3; ++i) {
    gradsync::testing::StudyRun two = with_epochs("ddp", 2, 0, "500", 100 << i);
    two.compute_s = 0.011 * (1 << i) * (1 + 0.001 * i);
    two.exposed_s = 0.010 * (1 << i);
    gradsync::testing::write_study(folder / fmt::format("two{}.h5", i), two);
  }
  const std::string text = with_layout(
      "\"compute\": \"whole-epoch\"",
      R"("compute": "measured", "communication": "measured", "sentences": [{"topic": "t",
          "says": "s", "left": "compute_time 2x50", "is": "above", "right": "comm_time 2x50"}])");
  const Table table = tables_as_published(parse_layout(text, "l.json", world.folder.path()),
                                          gradsync::testing::loaded(folder))
                          .back();
  CHECK(table.rows[0][gradsync::testing::column_of(table, "judgement")].text == "confirmed here");
}

TEST_CASE("layout: a sentence is confirmed, contradicted or open") {
  const LayoutWorld world;
  const auto judged = [&](const std::string& is, const std::vector<double>& seconds_of_two) {
    TestFolder folder;
    for (std::size_t i = 0; i < seconds_of_two.size(); ++i) {
      gradsync::testing::write_study(
          folder / fmt::format("one{}.h5", i),
          with_epochs("none", 1, 0, "1000", 100 + 0.1 * static_cast<double>(i)));
      gradsync::testing::write_study(folder / fmt::format("two{}.h5", i),
                                     with_epochs("ddp", 2, 0.004, "500", seconds_of_two[i]));
    }
    const std::string text = with_layout(
        "\"tables\"", R"("sentences": [{"topic": "t", "says": "s", "left": "epoch_time 2x50",
          "is": ")" + is + R"(", "right": "epoch_time 1x50"}], "tables")");
    const RunSet set = gradsync::testing::loaded(folder);
    const Table table =
        tables_as_published(parse_layout(text, "l.json", world.folder.path()), set).back();
    CHECK(table.rows[0][gradsync::testing::column_of(table, "report_ratio")].number ==
          doctest::Approx(0.6));
    return table.rows[0][gradsync::testing::column_of(table, "judgement")].text;
  };
  CHECK(judged("below", {60}) == "same side, no interval");
  CHECK(judged("below", {120}) == "other side, no interval");
  CHECK(judged("below", {60, 61, 62}) == "confirmed here");
  CHECK(judged("above", {60, 61, 62}) == "contradicted here");
  CHECK(judged("above", {80, 100, 125}) == "open: the interval holds 1");
}

TEST_CASE("layout: a sentence without a mode is of the first one that the report prints") {
  const LayoutWorld world;
  const std::string printed = read_text_file(world.folder / "paper.csv");
  gradsync::testing::write_plainly(world.folder / "paper.csv",
                                   printed + "r,t,lenet,gather-scatter,2,50,epoch_time,90.0,s\n");
  const std::string text = R"({"published": "paper.csv", "report": "r", "tables": [
    {"name": "modes", "of": ["t"], "rows": ["devices", "mode"], "columns": ["value"],
     "quantities": ["epoch_time"]}], "sentences": [{"topic": "t", "says": "s",
      "left": "epoch_time 2x50", "is": "below", "right": "epoch_time 1x50"}]})";
  const RunSet set = gradsync::testing::loaded(world.folder);
  const Table table =
      tables_as_published(parse_layout(text, "l.json", world.folder.path()), set).back();
  CHECK(table.rows[0][gradsync::testing::column_of(table, "report_ratio")].number ==
        doctest::Approx(0.6));
}

TEST_CASE("layout: times of different settings are not set against each other") {
  const LayoutWorld world;
  for (const auto& [name, batch, precision] :
       {std::tuple{"a.h5", 50, "fp32"}, std::tuple{"b.h5", 25, "bf16"}}) {
    gradsync::testing::StudyRun run{"none", 1, batch};
    run.change_info = [precision = std::string(precision)](RunInfo& info) {
      info.config.push_back({"precision", precision, "command line"});
    };
    gradsync::testing::write_study(world.folder / name, run);
  }
  const std::string text = with_layout("\"tables\"", R"("sentences": [{"says": "s",
      "left": "mean_iteration_time 1x50", "is": "above",
      "right": "mean_iteration_time 1x25"}], "tables")");
  const RunSet set = gradsync::testing::loaded(world.folder);
  const Table table =
      tables_as_published(parse_layout(text, "l.json", world.folder.path()), set).back();
  CHECK(gradsync::testing::shown(table, 0, "judgement") == "n/a");
  CHECK(contains(gradsync::testing::shown(table, 0, "remark"),
                 "not compared: precision fp32 and bf16"));
}

TEST_CASE("layout: a sentence on iterations of one job is judged within its rounds") {
  const LayoutWorld world;
  const auto write = [&](const std::string& mode, double factor) {
    gradsync::testing::StudyRun run{mode, 2, 50};
    run.iterations = 24;
    run.change = [=](IterationRow& row) {
      row.round = row.iteration / 2;
      for (RankIteration& rank : row.ranks)  // the machine becomes slower and slower
        rank[Phase::kIteration] *= factor * static_cast<double>(1 + row.round);
    };
    run.change_info = [=](RunInfo& info) {
      info.experiment = {{"id", "1"}, {"contender", mode}, {"contenders", "allreduce,ddp"}};
    };
    gradsync::testing::write_study(world.folder / (mode + ".h5"), run);
  };
  write("allreduce", 1.1);
  write("ddp", 1);
  const std::string text = with_layout("\"tables\"", R"("sentences": [{"says": "ddp is faster",
      "left": "mean_iteration_time 2x50 ddp", "is": "below",
      "right": "mean_iteration_time 2x50 allreduce"}], "tables")");
  const RunSet set = gradsync::testing::loaded(world.folder);
  const Table table =
      tables_as_published(parse_layout(text, "l.json", world.folder.path()), set).back();
  CHECK(table.rows[0][gradsync::testing::column_of(table, "high")].number ==
        doctest::Approx(1 / 1.1));
  CHECK(gradsync::testing::shown(table, 0, "judgement") == "confirmed here");
}

TEST_CASE("layout: one rank stands beside several with as many threads, alone with the most") {
  const LayoutWorld world;
  gradsync::testing::write_study(world.folder / "two.h5", with_epochs("ddp", 2, 0.004, "500", 60));
  gradsync::testing::StudyRun whole = with_epochs("none", 1, 0, "1000", 40);
  whole.change_info = [before = whole.change_info](RunInfo& info) {
    before(info);
    info.config.push_back({"evaluate", "none", "command line"});
    info.config.push_back({"threads", "9", "command line"});
  };
  gradsync::testing::write_study(world.folder / "whole.h5", whole);
  const Table table = world.table();
  CHECK(in_row(table, "epoch_time s", "devices_1_measured") == 100);
  CHECK(in_row(table, "speedup", "devices_2_measured") == doctest::Approx(100.0 / 60));
  CHECK_FALSE(contains(gradsync::testing::all_notes(table), "several runs belong in one cell"));
  std::filesystem::remove(world.folder / "two.h5");
  CHECK(in_row(world.table(), "epoch_time s", "devices_1_measured") == 40);
}

TEST_CASE("layout: what is unknown is refused with its place") {
  const LayoutWorld world;
  CHECK(contains(world.refused(with_layout("[\"t\"]", "[\"speedup\"]")),
                 "table speedup: r has no table speedup"));
  CHECK(contains(world.refused(with_layout("\"r\"", "\"q\"")), "paper.csv has no report q"));
  CHECK(contains(world.refused(with_layout("\"speedup\", \"comm", "\"spedup\", \"comm")),
                 "table speedup: quantities: spedup is no quantity that runs have"));
  CHECK(contains(world.refused(with_layout("[\"devices\"]", "[\"device\"]")),
                 "columns: device is not one of them; did you mean devices?"));
  CHECK(contains(world.refused(with_layout("\"columns\"", "\"colums\"")),
                 "colums is not a key; did you mean columns?"));
  CHECK(contains(world.refused(with_layout("\"message\"", "\"mesage\"")),
                 "bandwidth: mesage is not one of them; did you mean message?"));
  CHECK(contains(world.refused(with_layout("epoch_time in", "speedup in")), "speedup is no time"));
  CHECK(contains(world.refused(with_layout("epoch_time in", "mean_iteration_time in")),
                 "mean_iteration_time is no time of an epoch"));
  CHECK(contains(world.refused(with_layout("[\"devices\"]", "[\"quantity\"]")),
                 "quantity stands twice"));
  CHECK(contains(world.refused(with_layout("[\"devices\"]", "[]")), "two numbers for row"));
  CHECK(contains(world.refused("{"), "this is not JSON"));
  CHECK(contains(world.refused("{}"), "no tables"));
  const auto refused_sentence = [&](const std::string& left) {
    return world.refused(with_layout(
        "\"tables\"", R"("sentences": [{"left": ")" + left + R"(", "right": "1"}], "tables")"));
  };
  CHECK(contains(refused_sentence("epoch_time"), "a sentence: left: epoch_time names no number"));
  CHECK(contains(refused_sentence("epoch_time 2"), "left:  is no setting"));
  CHECK(contains(refused_sentence("epoc_time 2x50"), "epoc_time is no quantity that runs have"));
}

TEST_CASE("layout: those of the five reports hold every number that the reports print, once") {
  const std::vector<std::string> names = layout_names();
  CHECK(names.size() == 5);
  const RunSet none;
  std::map<std::string, std::vector<Table>> made;
  for (const std::string& name : names) {
    const Layout layout = read_layout(name);
    made[name] = tables_as_published(layout, none);
    std::multiset<std::string> printed, shown;
    for (const AuditedNumber& one : audited(layout.published, 50000).numbers)
      if (one.report == name) printed.insert(fmt::format("{:.{}f}", one.value, one.decimals));
    for (const Table& table : made[name]) {
      CHECK_MESSAGE(table.rows.size() > 1, table.name);
      CHECK_FALSE(contains(gradsync::testing::all_notes(table), "none of these"));
      for (const auto& row : table.rows)
        for (std::size_t c = 0; c < row.size(); ++c) {
          const bool published = contains(table.columns[c].name, "published") ||
                                 std::any_of(row.begin(), row.end(), [](const Cell& cell) {
                                   return cell.text == "published";
                                 });
          if (published && std::isfinite(row[c].number)) shown.insert(row[c].shown());
        }
    }
    CHECK_MESSAGE(printed == shown, name);
  }
  const auto columns_of = [&](const std::string& report, std::size_t table) {
    std::string text;
    for (const Column& column : made[report].at(table).columns)
      text += column.name + " ";
    return text;
  };
  // Devices as rows, a pair for each batch.
  CHECK(columns_of("report-a", 1) ==
        "devices value batch_32_epoch_time_s batch_32_speedup batch_128_epoch_time_s "
        "batch_128_speedup batch_512_epoch_time_s batch_512_speedup remark ");
  CHECK(columns_of("report-c", 2) ==
        "devices value batch_32_compute_time_s batch_32_comm_time_s batch_128_compute_time_s "
        "batch_128_comm_time_s batch_512_compute_time_s batch_512_comm_time_s remark ");
  // Seconds of one device, speedups of several.
  CHECK(
      columns_of("report-e", 1) ==
      "batch_per_device value devices_1_epoch_time_s devices_2_speedup devices_4_speedup remark ");
  CHECK(made["report-a"].at(4).rows.size() == 6);  // large batch: two settings
  for (const std::string& name : names)
    for (const auto& row : made[name].back().rows)
      CHECK_MESSAGE(row.back().text.empty(), row[1].text);  // own numbers agree with each sentence
  CHECK(read_layout("report-b").plots == std::vector<std::string>{"loss", "iteration-time"});
  const auto& of_b = made["report-b"];
  const std::string wrong = "training loss far below each printed iteration loss";
  CHECK(contains(gradsync::testing::all_notes(of_b[0]), "published numbers are contradicted: "));
  CHECK(contains(gradsync::testing::all_notes(of_b[0]), wrong));
  CHECK_FALSE(contains(gradsync::testing::all_notes(of_b[1]), wrong));
  CHECK_FALSE(contains(gradsync::testing::all_notes(of_b[0]), "doubtful"));
  CHECK(contains(error_text(ExitCode::kUsage, [] { read_layout("report-f"); }), "no layout"));
  error_text(ExitCode::kNoInput, [] { read_layout("/nowhere/layout.json"); });
}

TEST_CASE("layout: gradsync-audit reads the numbers, and refuses a file with its exit code") {
  const LayoutWorld world;
  const AuditedNumbers read = audited(world.folder / "paper.csv", 50000);
  REQUIRE(read.numbers.size() == 6);
  CHECK(read.file == "paper.csv");
  const AuditedNumber& one = read.numbers[4];
  CHECK(one.line == 6);
  CHECK(one.quantity == "bandwidth");
  CHECK(one.value == 1);
  CHECK(one.base_value == 1e6);
  CHECK(one.decimals == 1);
  gradsync::testing::write_plainly(world.folder / "paper.csv", "quantity,value\nepoch_time,x\n");
  CHECK(contains(world.refused(kLayout), "gradsync-audit ended with exit code 65"));
  std::filesystem::remove(world.folder / "paper.csv");
  error_text(ExitCode::kNoInput, [&] { world.table(); });
}

TEST_CASE("layout: a byte that is no UTF-8 is U+FFFD in what gradsync-audit writes") {
  const LayoutWorld world;
  world.prints("r,t\xFF,resnet18,ddp,2,32,bandwidth,10,GB/s\n");
  const AuditedNumbers read = audited(world.folder / "paper.csv", 50000);
  REQUIRE(read.numbers.size() == 1);
  CHECK(read.numbers[0].table == "t\xEF\xBF\xBD");
}

TEST_CASE("layout: numbers that are there twice are audited once") {
  std::vector<AuditedNumber> numbers(3);
  for (AuditedNumber& one : numbers) {
    one.report = "r";
    one.table = "a \"b\", c";
    one.quantity = "speedup";
    one.unit = "1";
    one.devices = 2;
    one.value = 2.5;
    one.decimals = 12;
  }
  numbers[1].quantity = "efficiency";
  numbers[1].value = 0.9;
  const auto findings = audit(numbers, 50000);
  CHECK(numbers[0].line == 2);
  CHECK(numbers[1].line == 3);
  CHECK(numbers[2].line == 2);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].severity == "impossible");
  CHECK(findings[0].what == "super-linear speedup");
  CHECK(findings[0].lines == std::set<std::size_t>{2});
}

TEST_CASE("layout: quantities, numbers in names count as N, and units") {
  CHECK(kind_of("epoch_17_time") == Kind::kEpochTime);
  CHECK(kind_of("Epoch-2-Time") == Kind::kEpochTime);
  CHECK(kind_of("test_accuracy") == Kind::kAccuracy);
  CHECK(kind_of("epoch__time") == Kind::kUnknown);
  CHECK(kind_of("weak_speedup") == Kind::kUnknown);
  for (const auto& unit : std::map<std::string, double>{{"s", 1},
                                                        {"ms", 1e-3},
                                                        {"min", 60},
                                                        {"MB/s", 1e6},
                                                        {"MiB/s", 1048576},
                                                        {"Gbit/s", 1.25e8},
                                                        {"Gbps", 1.25e8},
                                                        {"%", 0.01},
                                                        {"of 10000", 1},
                                                        {"", 1}}) {
    CAPTURE(unit.first);
    REQUIRE(parse_unit(unit.first));
    CHECK(parse_unit(unit.first)->factor == doctest::Approx(unit.second));
    CHECK(parse_unit(unit.first)->of_bandwidth == (unit.second > 1e3));
  }
  CHECK(parse_unit("of 10000")->total == 10000);
  for (const char* unknown : {"parsec", "of many", "/s", "GB/h"})
    CHECK_FALSE(parse_unit(unknown));
}

TEST_CASE("published: the ranges that the report shows are those of ranges.csv") {
  constexpr const char* kFile = "results/published/ranges.csv";
  if (!std::filesystem::exists(kFile)) {
    MESSAGE("SKIP: results/published is not below the working folder");
    return;
  }
  auto lines = split_list(read_text_file(kFile), '\n');
  lines.pop_back();  // after the last end of a line
  REQUIRE(lines.size() == 1 + kPublishedRanges.size());
  CHECK(lines[0] == "report,layer,min,max,three_sigma_lower,three_sigma_upper");
  for (std::size_t i = 0; i < kPublishedRanges.size(); ++i) {
    const auto printed = split_list(lines[i + 1], ',');
    const PublishedRange& shown = kPublishedRanges[i];
    CAPTURE(shown.layer);
    CHECK(printed[1] == shown.layer);
    CHECK(parse_number(printed[2]) == shown.minimum);
    CHECK(parse_number(printed[3]) == shown.maximum);
    CHECK(parse_number(printed[4]) == shown.sigma_low);
    CHECK(parse_number(printed[5]) == shown.sigma_high);
  }
}
