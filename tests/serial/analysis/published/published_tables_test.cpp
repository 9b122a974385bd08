// The tables of published numbers: as from run files.

#include "analysis/published/published_tables.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "analysis/published/as_published.h"
#include "analysis/published/audit_page.h"
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
  run.add_more = [=](Recorder& recorder) {
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
  CHECK(gradsync::testing::shown(table, 0, "remark") == "2: extrapolated");
  CHECK(contains(table.notes.front(), "no whole epoch was run"));
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

TEST_CASE("layout: those of the five reports, with runs and without") {
  const std::vector<std::string> names = layout_names();
  CHECK(names.size() == 5);
  const RunSet none;
  for (const std::string& name : names)
    for (const Table& table : tables_as_published(read_layout(name), none)) {
      // Part of report d is in no published row.
      const bool printed = table.name != "report-d-compute-comm";
      CHECK_MESSAGE((table.rows.size() > 1) == printed, table.name);
    }
  const auto of_b = tables_as_published(read_layout("report-b"), none);
  const std::string wrong = "training loss far below each printed iteration loss";
  CHECK(contains(gradsync::testing::all_notes(of_b[0]), "published numbers are contradicted: "));
  CHECK(contains(gradsync::testing::all_notes(of_b[0]), wrong));
  CHECK_FALSE(contains(gradsync::testing::all_notes(of_b[1]), wrong));
  CHECK_FALSE(contains(gradsync::testing::all_notes(of_b[0]), "doubtful"));
  CHECK(contains(error_text(ExitCode::kUsage, [] { read_layout("report-f"); }), "no layout"));
  error_text(ExitCode::kNoInput, [] { read_layout("/nowhere/layout.json"); });
}
