// The tables of published numbers: as from run files.

#include "analysis/published/published_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "analysis/published/as_published.h"
#include "analysis/published/audit_page.h"
#include "base/file.h"
#include "serial/published_paper.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::report::published;
using namespace gradsync::report::published::testing;

namespace {

/// The number in a column of the first row that has these cells, whatever they are.
double number_in(const Table& table, const std::vector<std::string>& having,
                 const std::string& name) {
  for (const auto& row : table.rows) {
    const auto holds = [&](const std::string& text) {
      return std::any_of(row.begin(), row.end(),
                         [&](const Cell& cell) { return cell.shown() == text; });
    };
    if (!std::all_of(having.begin(), having.end(), holds)) continue;
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      if (table.columns[c].name == name) return row[c].number;
  }
  FAIL_CHECK("no such cell: " << name);
  return NAN;
}

}  // namespace

TEST_CASE("published: table speedup, strong and weak") {
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.at("single", 1, 100).say("epoch_time", "80.0", "s");
  paper.at("ddp", 2, 50).say("epoch_time", "60.0", "s").say("speedup", "1.67", "1");
  paper.raw("r,t,vgg11,single,1,256,mean_iteration_time,2.5,s");
  paper.raw("r,t,vgg11,ddp,4,256,mean_iteration_time,3.125,s");
  const Result result(paper);
  const Table table = make_published_speedup_table(result.study, result.audit);
  CHECK(number_in(table, {"ddp", "weak", "resnet18"}, "speedup") == doctest::Approx(100.0 / 60));
  CHECK(number_in(table, {"ddp", "strong"}, "speedup") == doctest::Approx(80.0 / 60));
  CHECK(number_in(table, {"ddp", "strong"}, "efficiency_percent") == doctest::Approx(200.0 / 3));
  CHECK(number_in(table, {"ddp", "strong"}, "published_speedup") == 1.67);
  CHECK(std::isnan(number_in(table, {"ddp", "weak", "resnet18"}, "weak_speedup")));  // an epoch
  // An iteration of weak scaling: 2.5/3.125 = 80 %, four times the work in it.
  CHECK(number_in(table, {"ddp", "vgg11"}, "efficiency_percent") == doctest::Approx(80));
  CHECK(number_in(table, {"ddp", "vgg11"}, "weak_speedup") == doctest::Approx(3.2));
  CHECK(number_in(table, {"the base itself", "50"}, "speedup") == 1);
}

TEST_CASE("published: tables batch-size, compute-comm and bandwidth") {
  Paper paper = times();
  paper.at("ddp", 4, 100).say("compute_time", "20", "s").say("comm_time", "4", "s");
  paper.at("ddp", 4, 100).say("bandwidth", "2.0", "GB/s");
  paper.at("ddp", 4, 100).say("epoch_2_loss", "1.5", "1").say("epoch_2_accuracy", "61", "%");
  paper.at("ddp", 4, 100).say("test_correct", "700", "of 1000");
  AuditOptions options;
  options.message_bytes = 1048576;
  const Result result(paper, options);
  const Table batch = make_published_batch_size_table(result.study, result.audit);
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "epoch_time_s") == 28);
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "iterations") == 125);
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "images_per_s") ==
        doctest::Approx(50000.0 / 28));
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "test_accuracy_percent") == doctest::Approx(70));
  CHECK(number_in(batch, {"ddp", "4", "400", "2"}, "accuracy_percent") == doctest::Approx(61));
  CHECK(std::isnan(number_in(batch, {"ddp", "4", "400", "2"}, "epoch_time_s")));
  // 125 iterations: T(4) 28 s, T(1)/4 = 25 s, so 3 s; printed 20 s and 4 s.
  const Table split = make_published_compute_comm_table(result.study, result.audit);
  CHECK(number_in(split, {"4", "400"}, "iteration_ms") == doctest::Approx(224));
  CHECK(number_in(split, {"4", "400"}, "derived_compute_ms") == doctest::Approx(200));
  CHECK(number_in(split, {"4", "400"}, "derived_communication_ms") == doctest::Approx(24));
  CHECK(number_in(split, {"4", "400"}, "published_compute_ms") == doctest::Approx(160));
  CHECK(number_in(split, {"4", "400"}, "published_sum_percent") == doctest::Approx(2400.0 / 28));
  // 1.5 * 2^20 B * 125 / 4 s; derived 3 s. One message of 1/1,024 GiB, times 1.5, in 4 s.
  const Table link = make_published_bandwidth_table(result.study, result.audit);
  CHECK(number_in(link, {"4", "400"}, "busbw_measured_gb_per_s") == doctest::Approx(0.049152));
  CHECK(number_in(link, {"4", "400"}, "busbw_derived_gb_per_s") == doctest::Approx(0.065536));
  CHECK(number_in(link, {"4", "400"}, "ring_epoch_measured_gib_per_s") ==
        doctest::Approx(1.5 / 1024 / 4));
  CHECK(number_in(link, {"4", "400"}, "published_gb_per_s") == 2);
  CHECK(std::isnan(number_in(link, {"2", "100"}, "busbw_measured_gb_per_s")));  // not printed
}

TEST_CASE("published: clean numbers give no finding, and every table and the page can be made") {
  Paper paper = with("speedup", {"1.67", "2.50", "1.92", "3.57"}, "1");
  const Result result(paper);
  CHECK(result.audit.findings.empty());
  CHECK(contains(page_text(audit_page(result.study, result.audit)), "4 agree"));
  for (const PublishedTableSpec& table : published_tables())
    if (table.make) CHECK_FALSE(table.make(result.study, result.audit).columns.empty());
  CHECK(make_published_values_table(result.study, result.audit).rows.size() == 4);
}

TEST_CASE("published: table large-batch, the last epoch against the smallest batch") {
  Paper paper;
  paper.at("single", 1, 50).say("epoch_2_accuracy", "50", "%").say("epoch_10_accuracy", "80", "%");
  paper.at("ddp", 4, 500).say("epoch_10_accuracy", "62.5", "%").say("epoch_10_loss", "1.25", "1");
  paper.at("ddp", 4, 20000).say("epoch_10_accuracy", "11", "%");
  paper.at("ddp", 2, 50).say("epoch_time", "60.0", "s");  // says nothing of accuracy
  paper.raw("r,other,resnet18,ddp,2,50,test_correct,700,of 1000");
  const Result result(paper);
  const Table table = make_published_large_batch_table(result.study, result.audit);
  CHECK(table.rows.size() == 4);
  CHECK(number_in(table, {"single", "10"}, "accuracy_percent") == doctest::Approx(80));
  CHECK(number_in(table, {"single", "10"}, "accuracy_change_points") == doctest::Approx(0));
  CHECK(number_in(table, {"ddp", "2000"}, "accuracy_change_points") == doctest::Approx(-17.5));
  CHECK(number_in(table, {"ddp", "2000"}, "base_batch_global") == 50);
  CHECK(number_in(table, {"ddp", "2000"}, "loss") == 1.25);
  CHECK(contains(table.rows[2].back().text, "full batch"));
  CHECK(number_in(table, {"other"}, "test_accuracy_percent") == doctest::Approx(70));
  CHECK(contains(table.sources[1], "lines 3-5"));
}

// --- layouts -------------------------------------------------------------------------------------

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

  LayoutWorld() {
    gradsync::testing::write_plainly(
        folder / "paper.csv",
        "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
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
  CHECK(contains(gradsync::testing::all_notes(table), "measured numbers are impossible: "));
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
  gradsync::testing::write_plainly(
      world.folder / "paper.csv",
      "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
      "r,t,lenet,single,1,50,epoch_time,50.0,s\nr,t,lenet,ddp,2,50,speedup,1.60,1\n");
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
  gradsync::testing::write_plainly(
      world.folder / "paper.csv",
      "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
      "r,t,lenet,single,1,50,epoch_time,50.0,s\nr,t,lenet,ddp,2,,epoch_time,42.0,s\n"
      "r,t,lenet,ddp,,50,epoch_time,43.0,s\n");
  const Table table = world.table();
  CHECK(std::isnan(in_row(table, "epoch_time ms/iteration", "devices_2_published")));
  CHECK(std::isnan(in_row(table, "epoch_time ms/iteration", "devices___published")));
  CHECK(in_row(table, "epoch_time s", "devices___published") == 43);
}

TEST_CASE("layout: one device has a bandwidth of a message, and no other table's numbers") {
  const LayoutWorld world;
  gradsync::testing::write_plainly(
      world.folder / "paper.csv",
      "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
      "r,t,lenet,single,1,50,comm_time,2.0,s\nr,t,lenet,single,1,50,bandwidth,2.0,MB/s\n");
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
  gradsync::testing::write_plainly(
      world.folder / "paper.csv",
      "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
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
  CHECK(contains(world.refused(with_layout("[\"devices\"]", "[\"quantity\"]")),
                 "quantity stands twice"));
  CHECK(contains(world.refused(with_layout("[\"devices\"]", "[]")), "two numbers for row"));
  CHECK(contains(world.refused("{"), "this is not JSON"));
  CHECK(contains(world.refused("{}"), "no tables"));
}

TEST_CASE("layout: those of the five reports hold every number that the reports print, once") {
  const std::vector<std::string> names = layout_names();
  CHECK(names.size() == 5);
  const RunSet none;
  std::map<std::string, std::vector<Table>> made;
  for (const std::string& name : names) {
    const Layout layout = read_layout(name);
    made[name] = tables_as_published(layout, none);
    const auto file = parse_published(read_text_file(layout.published), "reports.csv");
    std::multiset<std::string> printed, shown;
    for (const Row& row : file.rows)
      if (row.report == name) printed.insert(row.text);
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
  CHECK(made["report-a"].back().rows.size() == 6);  // large batch: two settings
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
