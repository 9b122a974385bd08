#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "analysis/published/audit.h"
#include "analysis/published/audit_page.h"
#include "analysis/published/published_tables.h"
#include "expect_error.h"

using namespace gradsync;
using namespace gradsync::published;

namespace {

/// Writes small published tables: setting first, then numbers as they would be printed.
class Paper {
 public:
  Paper& at(const std::string& mode, int devices, int batch) {
    setting_ = "r,t,resnet18," + mode + "," + std::to_string(devices) + "," + std::to_string(batch);
    return *this;
  }
  Paper& say(const std::string& quantity, const std::string& value, const std::string& unit) {
    text_ += setting_ + "," + quantity + "," + value + "," + unit + "\n";
    return *this;
  }
  Paper& raw(const std::string& line) {
    text_ += line + "\n";
    return *this;
  }
  Study study() const { return Study(parse_published(text_, "paper.csv")); }

 private:
  std::string text_ = "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n";
  std::string setting_;
};

struct Result {
  Study study;
  Audit audit;

  explicit Result(const Paper& paper, const AuditOptions& options = {})
      : study(paper.study()), audit(published::audit(study, options)) {}

  /// The verdict on the row of this quantity, devices and batch.
  std::string verdict(const std::string& quantity, std::int64_t devices, std::int64_t batch) const {
    for (std::size_t i = 0; i < study.rows().size(); ++i) {
      const Row& row = study.rows()[i];
      if (row.quantity == quantity && row.devices == devices && row.batch_per_device == batch)
        return audit.verdicts[i].text;
    }
    return "no such row";
  }
  const Fit& fit(const std::string& quantity) const {
    for (const ColumnAudit& column : audit.columns)
      if (column.column.quantity == quantity) return column.fit;
    FAIL("no such column");
    return audit.columns.front().fit;
  }
  /// The finding whose text holds `part`, in one line with its severity; "" if there is none.
  std::string finding(const std::string& part) const {
    for (const Finding& finding : audit.findings)
      if (contains(finding.text(), part))
        return std::string(severity_text(finding.severity)) + ": " + finding.text();
    return "";
  }
};

/// T(1) = 100 s; T(2) = 60 s, T(4) = 40 s at batch 50, T(2) = 52 s, T(4) = 28 s at batch 100:
/// 50,000 images are 1,000, 500 and 250 iterations at batch 50, and half of that at 100.
Paper times() {
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.at("ddp", 2, 50).say("epoch_time", "60.0", "s");
  paper.at("ddp", 4, 50).say("epoch_time", "40.0", "s");
  paper.at("single", 1, 100).say("epoch_time", "100.0", "s");
  paper.at("ddp", 2, 100).say("epoch_time", "52.0", "s");
  paper.at("ddp", 4, 100).say("epoch_time", "28.0", "s");
  return paper;
}

/// Adds one number for each of the four settings with several devices, in their order.
Paper with(const std::string& quantity, const std::vector<std::string>& values,
           const std::string& unit, Paper paper = times()) {
  const std::vector<std::pair<int, int>> settings = {{2, 50}, {4, 50}, {2, 100}, {4, 100}};
  for (std::size_t i = 0; i < values.size(); ++i)
    paper.at("ddp", settings[i].first, settings[i].second).say(quantity, values[i], unit);
  return paper;
}

}  // namespace

// --- formulas, worked by hand from the times above -----------------------------------------------

TEST_CASE("published: speedup is T(1)/T(n), n*T(1)/T(n) or T(1)/(n*T(n))") {
  const Result plain(with("speedup", {"1.67", "2.50", "1.92", "3.57"}, "1"));
  CHECK(plain.fit("speedup").reproduces);
  CHECK(plain.fit("speedup").convention->name == "speedup");
  CHECK(plain.verdict("speedup", 4, 100) == "agrees");
  const Result scaled(with("speedup", {"3.33", "10.00", "3.85", "14.29"}, "1"));
  CHECK(scaled.fit("speedup").convention->name == "weak-speedup");
  CHECK(scaled.verdict("speedup", 2, 50) == "agrees");
  CHECK(contains(scaled.finding("n*T(1)/T(n)"), "contradicted"));
  CHECK(contains(scaled.finding("n*T(1)/T(n)"), "By T(1)/T(n) it is 1.67 to 3.57"));
  const Result efficiency(with("speedup", {"0.833", "0.625", "0.962", "0.893"}, "1"));
  CHECK(efficiency.fit("speedup").convention->name == "efficiency");
}

TEST_CASE("published: efficiency in per cent or as a fraction, strong or weak") {
  const Result percent(with("efficiency", {"83.3", "62.5", "96.2", "89.3"}, "%"));
  CHECK(percent.fit("efficiency").convention->name == "strong-efficiency");
  CHECK(percent.verdict("efficiency", 2, 100) == "agrees");
  const Result weak(with("weak_efficiency", {"1.67", "2.50", "1.92", "3.57"}, "1"));
  CHECK(weak.fit("weak_efficiency").convention->name == "weak-efficiency");
  CHECK(contains(weak.finding("efficiency above 1"), "impossible"));
}

TEST_CASE("published: compute T(1)/n and communication T(n) - T(1)/n") {
  Paper paper = with("compute_time", {"50.0", "25.0", "50.0", "25.0"}, "s");
  paper = with("comm_time", {"10.0", "15.0", "2.0", "3.0"}, "s", paper);
  const Result result(paper);
  CHECK(result.fit("compute_time").convention->formula == "T(1)/n");
  CHECK(result.fit("comm_time").convention->formula == "T(n) - T(1)/n");
  for (const int batch : {50, 100})
    for (const int devices : {2, 4}) {
      CHECK(result.verdict("compute_time", devices, batch) == "agrees");
      CHECK(result.verdict("comm_time", devices, batch) == "agrees");
    }
  CHECK(result.audit.findings.empty());
}

TEST_CASE("published: one value of a column that differs") {
  const Result result(with("speedup", {"1.67", "2.60", "1.92", "3.57"}, "1"));
  CHECK(result.verdict("speedup", 2, 50) == "agrees");
  CHECK(result.verdict("speedup", 4, 50) == "differs: expected 2.50");
  // 2.60 * 40 s
  CHECK(contains(result.finding("do not give"), "2.60 needs T(1) = 104 s"));
}

TEST_CASE("published: cut off instead of rounded") {
  // 100/60 = 1.6667 is cut off to 1.66.
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.000", "s");
  paper.at("ddp", 2, 50).say("epoch_time", "60.000", "s").say("speedup", "1.66", "1");
  const Result result(paper);
  CHECK(result.verdict("speedup", 2, 50) == "agrees (cut off, not rounded)");
}

TEST_CASE("published: the rounding of primary numbers is carried through") {
  // 10/3 with one digit each: T(1) in [9.5, 10.5], T(2) in [2.5, 3.5], so 2.71 to 4.20.
  const auto verdict_of = [](const std::string& value) {
    Paper paper;
    paper.at("single", 1, 32).say("epoch_time", "10", "s");
    paper.at("ddp", 2, 32).say("epoch_time", "3", "s").say("speedup", value, "1");
    return Result(paper).verdict("speedup", 2, 32);
  };
  CHECK(verdict_of("2.72") == "agrees");
  CHECK(verdict_of("4.19") == "agrees");
  CHECK(contains(verdict_of("2.69"), "differs: expected 3.33"));
  CHECK(contains(verdict_of("4.22"), "differs: expected 3.33"));
}

TEST_CASE("published: bandwidth conventions, S = 44,695,848 bytes for resnet18") {
  // Communication 10, 15, 2 and 3 s; iterations 500, 250, 250 and 125; n 2, 4, 2, 4.
  const Paper parts = with("comm_time", {"10.0000", "15.0000", "2.0000", "3.0000"}, "s");
  const auto name = [&](const std::vector<std::string>& values, const std::string& unit) {
    const Result result(with("bandwidth", values, unit, parts));
    return std::string(result.fit("bandwidth").reproduces ? result.fit("bandwidth").convention->name
                                                          : "none") +
           std::string(result.fit("bandwidth").choice.slip.text);
  };
  // S/t
  CHECK(name({"4.46958", "2.97972", "22.3479", "14.8986"}, "MB/s") == "message");
  // 2(n-1)/n = 1 and 1.5
  CHECK(name({"4.46958", "4.46958", "22.3479", "22.3479"}, "MB/s") == "ring-epoch");
  // S*iterations/t: 500*S/10, 250*S/15, 250*S/2, 125*S/3
  CHECK(name({"2.23479", "0.744931", "5.58698", "1.86233"}, "GB/s") == "algbw");
  CHECK(name({"2.23479", "1.11740", "5.58698", "2.79349"}, "GB/s") == "busbw");
  // 2(n-1)*S*iterations/t: twice and six times the line of algbw
  CHECK(name({"4.46958", "4.46958", "11.1740", "11.1740"}, "GB/s") == "total-volume");
  // S/t said in the wrong unit
  CHECK(name({"4.46958", "2.97972", "22.3479", "14.8986"}, "GB/s") ==
        "message1,000 times too large");
  CHECK(name({"4.26253", "2.84169", "21.3127", "14.2084"}, "MB/s") ==
        "messagecomputed with powers of 1,024");
}

TEST_CASE("published: message size from the options, from the file, or unknown") {
  const auto paper = [](const std::string& model, const std::string& bandwidth) {
    Paper all;
    for (const auto& [devices, comm] : {std::pair(2, "1.000"), std::pair(4, "2.000")})
      all.raw("r,t," + model + ",ddp," + std::to_string(devices) + ",64,comm_time," + comm + ",s")
          .raw("r,t," + model + ",ddp," + std::to_string(devices) + ",64,bandwidth," +
               (devices == 2 ? "8.000" : bandwidth) + ",MB/s");
    return all;
  };
  AuditOptions options;
  options.parameters = 2e6;  // 8 MB over 1 and 2 s
  CHECK(Result(paper("mynet", "4.000"), options).verdict("bandwidth", 4, 64) == "agrees");
  options.message_bytes = 16e6;  // counts before the parameters
  CHECK(contains(Result(paper("mynet", "4.000"), options).verdict("bandwidth", 4, 64), "differs"));
  CHECK(Result(paper("mynet", "4.000")).verdict("bandwidth", 4, 64) ==
        "cannot be recomputed: the message of model 'mynet' is not known; give --parameters or "
        "--message-bytes");
  CHECK(Result(paper("mynet", "4.000")
                   .raw("r,t,mynet,ddp,2,64,parameters,2000000,1")
                   .raw("r,t,mynet,ddp,4,64,parameters,2000000,1"))
            .verdict("bandwidth", 4, 64) == "agrees");
}

TEST_CASE("published: an unknown message that would give the column is said") {
  // 30 MB over 1, 2 and 3 s by `message`; not resnet18's 44.7 MB.
  Paper paper;
  for (const auto& [batch, comm, bandwidth] :
       {std::tuple(10, "1.000", "30.00"), std::tuple(20, "2.000", "15.00"),
        std::tuple(40, "3.000", "10.00")})
    paper.at("ddp", 2, batch).say("comm_time", comm, "s").say("bandwidth", bandwidth, "MB/s");
  CHECK(contains(Result(paper).finding("no known message"), "message of 30"));
}

TEST_CASE("published: throughput is images over the epoch") {
  const Result result(with("images_per_s", {"833.3", "1250.0", "961.5", "1785.7"}, "images/s"));
  CHECK(result.fit("images_per_s").convention->name == "images-per-epoch-time");
  AuditOptions options;
  options.images = 60000;
  CHECK_FALSE(
      Result(with("images_per_s", {"833.3", "1250.0", "961.5", "1785.7"}, "images/s"), options)
          .fit("images_per_s")
          .reproduces);
}

// --- what cannot be recomputed -------------------------------------------------------------------

TEST_CASE("published: unknown quantities and units, and what was not published") {
  Paper paper = times();
  paper.at("ddp", 2, 50).say("joules", "3", "J").say("goodput", "1", "1");
  paper.at("ddp", 2, 100).say("comm_time", "3", "MB/s").say("speedup", "1.9", "furlong");
  paper.at("ddp", 8, 50).say("speedup", "5", "1");
  const Result result(paper);
  CHECK(result.verdict("goodput", 2, 50) == "cannot be recomputed: unknown quantity");
  CHECK(result.verdict("joules", 2, 50) == "cannot be recomputed: unknown quantity");
  CHECK(result.verdict("comm_time", 2, 100) ==
        "cannot be recomputed: 'MB/s' is the unit of a bandwidth, but comm_time is a time");
  CHECK(result.verdict("speedup", 2, 100) == "cannot be recomputed: unknown unit 'furlong'");
  CHECK(result.verdict("speedup", 8, 50) ==
        "cannot be recomputed: no epoch time of 8 devices at batch 50 is published");
  CHECK(result.verdict("epoch_time", 2, 50) == "primary");
}

TEST_CASE("published: a column that no convention gives may have been measured") {
  const Result result(with("comm_time", {"1.1", "7.7", "9.3", "0.4"}, "s"));
  CHECK(contains(result.verdict("comm_time", 2, 50), "so it may have been measured"));
  CHECK(contains(result.verdict("comm_time", 2, 50), "T(n) - T(1)/n gives 10.0"));
  // A speedup is no measurement.
  const Result speedup(with("speedup", {"9.1", "7.7", "9.3", "0.4"}, "1"));
  CHECK(contains(speedup.verdict("speedup", 2, 50), "differs: expected 1.67"));
}

TEST_CASE("published: without devices or batches nothing is guessed") {
  const Study study(
      parse_published("quantity,value,unit\nepoch_time,10,s\nspeedup,2,1\n", "p.csv"));
  const Audit result = audit(study, {});
  CHECK(result.verdicts[1].text == "cannot be recomputed: the number of devices is not given");
  const Study batched(parse_published(
      "quantity,value,unit,devices\nepoch_time,10,s,1\nepoch_time,5,s,2\nspeedup,2.0,1,2\n",
      "p.csv"));
  CHECK(audit(batched, {}).verdicts[2].text == "agrees");
}

TEST_CASE("published: reports, models and machines are not mixed") {
  Paper paper;
  paper.raw("a,t,m,single,1,32,epoch_time,100,s").raw("b,t,m,ddp,2,32,epoch_time,50,s");
  paper.raw("b,t,m,ddp,2,32,speedup,2,1").raw("a,t,m,ddp,2,32,epoch_time,80,s");
  const Result result(paper);
  CHECK(result.verdict("speedup", 2, 32) ==
        "cannot be recomputed: no epoch time of fewer than 2 devices is published");
}

TEST_CASE("published: where no single device was timed, the fewest devices are the base") {
  Paper paper;
  paper.at("ddp", 2, 32).say("epoch_time", "50.0", "s");
  paper.at("ddp", 4, 32).say("epoch_time", "30.0", "s").say("speedup", "1.67", "1");
  CHECK(Result(paper).verdict("speedup", 4, 32) == "agrees");  // 50/30
}

// --- what cannot be ------------------------------------------------------------------------------

TEST_CASE("published: parts against the epoch") {
  Paper paper = times();
  paper.at("ddp", 2, 50).say("compute_time", "60.0", "s").say("comm_time", "5.0", "s");
  paper.at("ddp", 4, 50).say("compute_time", "10.0", "s").say("comm_time", "41.0", "s");
  paper.at("ddp", 2, 100).say("compute_time", "53.0", "s").say("comm_time", "1.0", "s");
  paper.at("ddp", 4, 100).say("compute_time", "20.0", "s").say("comm_time", "4.0", "s");
  const Result result(paper);
  CHECK(contains(result.finding("compute equals the whole epoch"), "impossible: "));
  CHECK(contains(result.finding("compute equals the whole epoch"),
                 "2 devices at batch 50: 60 s of 60 s, with 5 s"));
  CHECK(contains(result.finding("communication takes longer than the epoch"),
                 "4 devices at batch 50: 41 s of 40 s"));
  CHECK(contains(result.finding("compute takes longer than the epoch"), "53 s of 52 s"));
  CHECK(contains(result.finding("is more than the epoch"), "10 s + 41 s, 11 s more than 40 s"));
  CHECK(contains(result.finding("unaccounted"), "20 s + 4 s, 4 s less than 28 s"));
}

TEST_CASE("published: super-linear speedups, printed or said by the times") {
  const Result printed(with("speedup", {"2.1", "2.5", "1.92", "3.57"}, "1"));
  CHECK(contains(printed.finding("super-linear"),
                 "impossible: super-linear speedup: 2 devices at batch 50: 2.1."));
  const Result rounded(with("speedup", {"2.0", "2.5", "1.92", "3.57"}, "1"));
  CHECK(rounded.finding("super-linear").empty());
  Paper paper;
  paper.at("single", 1, 32).say("epoch_time", "100", "s");
  paper.at("ddp", 2, 32).say("epoch_time", "40", "s");  // derived communication 40 − 50
  CHECK(contains(Result(paper).finding("fall faster"), "derived communication -10 s"));
}

TEST_CASE("published: bandwidth beyond links and beyond what was sent") {
  Paper paper = with("comm_time", {"10.0", "15.0", "2.0", "3.0"}, "s");
  paper = with("bandwidth", {"2000", "3.0", "3.1", "2.9"}, "GB/s", paper);
  AuditOptions options;
  options.message_bytes = 44.7e6;
  const Result result(paper, options);
  CHECK(contains(result.finding("more than any link"), "2 devices at batch 50: 2000 GB/s"));
  // 2000 GB/s for 10 s; on both links, each device through all images: 2 * 2 * 44.7 MB * 500.
  CHECK(contains(result.finding("more than all gradients"), "for 10 s are 20000 GB, of 89.4 GB"));
  CHECK_FALSE(contains(result.finding("more than all gradients"), "batch 100"));
  options.fastest_link_bytes_per_s = 3e12;
  CHECK(Result(paper, options).finding("more than any link").empty());
  Paper alone;
  alone.at("single", 1, 32).say("bandwidth", "5", "GB/s");
  CHECK(contains(Result(alone).finding("bandwidth of one device"), "Nothing crosses a link"));
}

TEST_CASE("published: units a step apart, in a column and between reports") {
  Paper paper;
  for (const auto& [batch, a, b] :
       {std::tuple(32, "10", "11"), std::tuple(64, "20", "19"), std::tuple(128, "40", "44")}) {
    const std::string at = ",t,resnet18,ddp,2," + std::to_string(batch) + ",bandwidth,";
    paper.raw("a" + at + a + ",MB/s").raw("b" + at + b + ",GB/s");
  }
  CHECK(contains(Result(paper).finding("about 1,000 times"),
                 "b prints about 1,000 times what a prints"));
  // T(n) − T(1)/n is 10, 15, 2 and 3 s; printed in the wrong unit.
  const Result column(with("comm_time", {"10000", "15000", "2000", "3000"}, "s"));
  CHECK(contains(column.finding("only if it is"), "1,000 times too large"));
}

TEST_CASE("published: shares, counts, signs and percentages") {
  Paper paper;
  paper.at("ddp", 2, 32).say("compute_share", "70", "%").say("comm_share", "31.5", "%");
  paper.at("ddp", 4, 32).say("compute_share", "45", "%").say("comm_share", "17", "%");
  paper.at("a", 1, 32).say("epoch_1_accuracy", "101", "%").say("epoch_2_accuracy", "63.5", "1");
  paper.at("b", 1, 32).say("test_correct", "10001", "of 10000").say("epoch_time", "-3", "s");
  paper.at("c", 1, 32).say("test_correct", "99.5", "of 10000").say("epoch_time", "0", "s");
  paper.at("d", 1, 32).say("compute_share", "50", "%").say("comm_share", "50", "%");
  const Result result(paper);
  CHECK(contains(result.finding("shares of one whole"),
                 "compute_share 70 % + comm_share 31.5 % = 101.5 %"));
  CHECK(contains(result.finding("do not sum"), "leave 38 %"));
  CHECK_FALSE(contains(result.finding("do not sum"), "50 %"));
  CHECK(contains(result.finding("above 100 %: line"), "epoch_1_accuracy 101 %"));
  CHECK(contains(result.finding("above 1 as a fraction"), "epoch_2_accuracy 63.5"));
  CHECK(contains(result.finding("more right than there are"), "10001"));
  CHECK(contains(result.finding("below zero"), "impossible: below zero: line 9"));
  CHECK(contains(result.finding("not whole"), "99.5"));
  CHECK(contains(result.finding("zero: line"), "epoch_time"));
}

TEST_CASE("published: ranks of one run") {
  Paper paper;
  for (const auto& [rank, correct, time] :
       {std::tuple(0, "1270", "1.17"), std::tuple(1, "1271", "1.74"),
        std::tuple(2, "1270", "1.75")})
    paper.at("allreduce:rank" + std::to_string(rank), 3, 64)
        .say("test_correct", correct, "of 10000")
        .say("mean_iteration_time", time, "s")
        .say("train_accuracy", std::to_string(10 + rank), "%");
  const Result result(paper);
  CHECK(contains(result.finding("different test results"), "1270, 1271, 1270"));
  CHECK(contains(result.finding("different iteration times"), "1.17, 1.74, 1.75"));
  CHECK(result.finding("10, 11, 12").empty());  // each rank trains on its own images
}

TEST_CASE("published: one thing with two values, and a batch of all images") {
  Paper paper;
  paper.raw("r,batch-size,m,single,1,32,epoch_2_time,20,s")
      .raw("r,speedup,m,single,1,32,epoch_time,16,s");
  paper.raw("r,batch-size,m,single,1,64,epoch_2_time,20,s")
      .raw("r,speedup,m,single,1,64,epoch_time,9,s");
  paper.raw("r,batch-size,m,single,1,60000,epoch_2_time,7,s")
      .raw("r,batch-size,m,single,1,120000,epoch_2_time,21,s");
  paper.raw("r,batch-size,m,single,1,128,epoch_1_time,90,s")
      .raw("r,batch-size,m,single,1,128,epoch_2_time,20,s");
  const Result result(paper);
  CHECK(contains(result.finding("more than 5 %"), "20 s (epoch_2_time, batch-size), 16 s"));
  CHECK(contains(result.finding("far apart"), "1 device at batch 64"));
  CHECK_FALSE(contains(result.finding("far apart"), "128"));  // the first epoch warms up
  CHECK(contains(result.finding("larger than the data set"), "times from 7 s to 21 s"));
}

TEST_CASE("published: losses and accuracies that do not go together") {
  Paper paper;
  // Half wrong needs a loss of 0.5 ln 2 = 0.3466 at least.
  paper.at("a", 1, 32).say("epoch_1_loss", "0.33", "1").say("epoch_1_accuracy", "50.0", "%");
  paper.at("b", 1, 32).say("epoch_1_loss", "0.36", "1").say("epoch_1_accuracy", "50.0", "%");
  paper.at("c", 1, 32).say("epoch_1_loss", "4.4", "1").say("epoch_1_accuracy", "10.9", "%");
  const Result result(paper);
  CHECK(contains(result.finding("too small for its accuracy"), "impossible: "));
  CHECK(contains(result.finding("too small for its accuracy"),
                 "a, 1 device at batch 32: loss 0.33 at 50 %"));
  CHECK_FALSE(contains(result.finding("too small for its accuracy"), "0.36"));
  CHECK(contains(result.finding("loss above guessing"), "c, 1 device"));
}

TEST_CASE("published: an accuracy that is the mean over batches, not over images") {
  // 10 images, batches of 4, 4 and 2; right 3, 2 and 1: by images 6/10, by batches
  // (3/4 + 2/4 + 1/2)/3 = 58.333...%, which is 5.83 images.
  AuditOptions options;
  options.images = 10;
  Paper paper;
  paper.at("a", 1, 4).say("epoch_1_accuracy", "58.33333333333333", "%");
  paper.at("b", 1, 4).say("epoch_1_accuracy", "60.00000000000000", "%");
  const std::string text = Result(paper, options).finding("no whole number");
  CHECK(contains(
      text,
      "a, 1 device at batch 4: 58.333333 % of 10 are 5.83 images, but a whole number in the mean"));
  CHECK_FALSE(contains(text, "b, 1"));
}

TEST_CASE("published: training time against running time") {
  Paper paper;
  paper.at("single", 1, 32).say("training_time", "20", "s").say("running_time", "22", "s");
  paper.at("ddp", 4, 32).say("training_time", "5", "s").say("running_time", "22", "s");
  paper.at("ddp", 2, 32).say("training_time", "25", "s").say("running_time", "22", "s");
  const Result result(paper);
  CHECK(contains(result.finding("much less than running"),
                 "5 s of 22 s, so T(1)/T(n) is 4.00 or 1.00"));
  CHECK(contains(result.finding("training time above running"),
                 "2 devices at batch 32: 25 s of 22 s"));
}

TEST_CASE("published: weak scaling shows in compute that does not shrink") {
  Paper paper;
  paper.at("ddp", 2, 32).say("compute_time", "15.5", "s");
  paper.at("ddp", 4, 32).say("compute_time", "15.4", "s");
  CHECK(contains(Result(paper).finding("does not shrink"), "15.5 s on 2, 15.4 s on 4"));
}

TEST_CASE("published: clean numbers give no finding, and every table and the page can be made") {
  Paper paper = with("speedup", {"1.67", "2.50", "1.92", "3.57"}, "1");
  const Result result(paper);
  CHECK(result.audit.findings.empty());
  CHECK(contains(page_text(audit_page(result.study, result.audit)), "4 agree"));
  for (const PublishedTableSpec& table : published_tables())
    if (table.make) CHECK_FALSE(table.make(result.study, result.audit).columns.empty());
  CHECK(make_values_table(result.study, result.audit).rows.size() == 4);
}

TEST_CASE("published: a base of another global batch") {
  // T(2) at batch 50 has the global batch of T(1) at batch 100: 100/60, and 80/60 against that.
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.at("single", 1, 100).say("epoch_time", "80.0", "s");
  paper.at("ddp", 2, 50).say("epoch_time", "60.0", "s").say("speedup", "1.67", "1");
  CHECK(contains(Result(paper).finding("another global batch"),
                 "T(1)/T(n) is 1.67, against the same global batch 1.33"));
}

// --- the tables as from run files ----------------------------------------------------------------

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
  const Table table = make_speedup_table(result.study, result.audit);
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
  const Table batch = make_batch_size_table(result.study, result.audit);
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "epoch_time_s") == 28);
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "iterations") == 125);
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "images_per_s") ==
        doctest::Approx(50000.0 / 28));
  CHECK(number_in(batch, {"ddp", "4", "400", "-"}, "test_accuracy_percent") == doctest::Approx(70));
  CHECK(number_in(batch, {"ddp", "4", "400", "2"}, "accuracy_percent") == doctest::Approx(61));
  CHECK(std::isnan(number_in(batch, {"ddp", "4", "400", "2"}, "epoch_time_s")));
  // 125 iterations: T(4) 28 s, T(1)/4 = 25 s, so 3 s; printed 20 s and 4 s.
  const Table split = make_compute_comm_table(result.study, result.audit);
  CHECK(number_in(split, {"4", "400"}, "iteration_ms") == doctest::Approx(224));
  CHECK(number_in(split, {"4", "400"}, "derived_compute_ms") == doctest::Approx(200));
  CHECK(number_in(split, {"4", "400"}, "derived_communication_ms") == doctest::Approx(24));
  CHECK(number_in(split, {"4", "400"}, "published_compute_ms") == doctest::Approx(160));
  CHECK(number_in(split, {"4", "400"}, "published_sum_percent") == doctest::Approx(2400.0 / 28));
  // 1.5 * 2^20 B * 125 / 4 s; derived 3 s. One message of 1/1,024 GiB, times 1.5, in 4 s.
  const Table link = make_bandwidth_table(result.study, result.audit);
  CHECK(number_in(link, {"4", "400"}, "busbw_measured_gb_per_s") == doctest::Approx(0.049152));
  CHECK(number_in(link, {"4", "400"}, "busbw_derived_gb_per_s") == doctest::Approx(0.065536));
  CHECK(number_in(link, {"4", "400"}, "ring_epoch_measured_gib_per_s") ==
        doctest::Approx(1.5 / 1024 / 4));
  CHECK(number_in(link, {"4", "400"}, "published_gb_per_s") == 2);
  CHECK(std::isnan(number_in(link, {"2", "100"}, "busbw_measured_gb_per_s")));  // not printed
}

TEST_CASE("published: known models by name") {
  CHECK(messages_of_model("resnet18").front().bytes == 4 * 11173962.0);
  CHECK(messages_of_model("ResNet-18").front().bytes == 4 * 11173962.0);
  CHECK(messages_of_model("resnet18-imagenet").front().bytes == 4 * 11689512.0);
  CHECK(messages_of_model("vgg11").front().bytes == 4 * 9231114.0);
  CHECK(messages_of_model("lenet").front().bytes == 4 * 61780.0);
  CHECK(messages_of_model("transformer").empty());
  CHECK(with_commas(1234567) == "1,234,567");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(-1000) == "-1,000");
}

TEST_CASE("published: iterations of an epoch") {
  CHECK(epoch_iterations(50000, 64, LastBatch::kCounted) == 782);
  CHECK(epoch_iterations(50000, 64, LastBatch::kLeftOut) == 781);
  CHECK(epoch_iterations(50000, 64, LastBatch::kFraction) == 781.25);
  CHECK(epoch_iterations(50000, 1e9, LastBatch::kLeftOut) == 1);
  CHECK(std::isnan(epoch_iterations(50000, NAN, LastBatch::kCounted)));
}
