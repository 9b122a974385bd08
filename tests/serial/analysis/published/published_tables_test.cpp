// The tables of published numbers: as from run files.

#include "analysis/published/published_tables.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "analysis/published/audit_page.h"
#include "serial/published_paper.h"

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
