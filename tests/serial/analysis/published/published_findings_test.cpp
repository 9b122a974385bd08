// What cannot be, is contradicted or misleads.

#include <doctest/doctest.h>

#include "serial/published_paper.h"

using namespace gradsync;
using namespace gradsync::report::published;
using namespace gradsync::report::published::testing;

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

TEST_CASE("published: a base of another global batch") {
  // T(2) at batch 50 has the global batch of T(1) at batch 100: 100/60, and 80/60 against that.
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.at("single", 1, 100).say("epoch_time", "80.0", "s");
  paper.at("ddp", 2, 50).say("epoch_time", "60.0", "s").say("speedup", "1.67", "1");
  CHECK(contains(Result(paper).finding("another global batch"),
                 "T(1)/T(n) is 1.67, against the same global batch 1.33"));
}
