// What cannot be, is contradicted or misleads.

#include <doctest/doctest.h>

#include "serial/published_paper.h"

using namespace gradsync;
using namespace gradsync::report::published;
using namespace gradsync::report::published::testing;

TEST_CASE("published: an unknown number of devices is not more than one") {
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.raw("r,t,resnet18,ddp,,50,epoch_time,60.0,s");
  CHECK(Result(paper).finding("faster than devices").empty());
  paper = {};
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.raw("r,t,resnet18,ddp,,50,epoch_time,160.0,s");
  CHECK(Result(paper).finding("slower than one").empty());
}

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
  CHECK(contains(result.finding("compute equals the whole epoch"), "contradicted: "));
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
                 "impossible: super-linear speedup: 2 devices at batch 50: 2.1; needs T(1) = 126 "
                 "s instead of 100 s."));
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

TEST_CASE("published: communication on one device has a finding and a value") {
  Paper paper = times();
  paper.at("single", 1, 128).say("comm_time", "1.4798", "s").say("bandwidth", "30.20", "MB/s");
  for (const auto& [devices, time, rate] :
       {std::tuple(2, "0.7441", "60.07"), std::tuple(4, "0.4007", "111.54")})
    paper.at("ddp", devices, 128).say("comm_time", time, "s").say("bandwidth", rate, "MB/s");
  const Result result(paper);
  const std::string found = result.finding("communication on one device");
  CHECK(contains(found,
                 "1 device at batch 128: comm_time 1.4798 s; 1 device at batch 128: "
                 "bandwidth 30.20 MB/s. Nothing crosses a link"));
  CHECK_FALSE(contains(found, "60.07"));
  CHECK(result.verdict("bandwidth", 1, 128) == "agrees");  // 44,695,848 B / 1.4798 s
  CHECK(result.verdict("bandwidth", 4, 128) == "agrees");
}

TEST_CASE("published: an epoch time that is published is not called unpublished") {
  Paper paper = times();
  paper.at("single", 1, 50).say("compute_time", "90.0", "s").say("comm_time", "9.0", "s");
  paper.at("single", 1, 50).say("speedup", "3", "1");
  CHECK_FALSE(contains(Result(paper).verdict("speedup", 1, 50), "no epoch time"));
}

TEST_CASE("published: one message takes as long at any batch") {
  // 500, 250, 250 and 125 iterations: 10 ms each, and 64 ms at the last.
  const Result grows(with("comm_time", {"5.0", "2.5", "2.5", "8.0"}, "s"));
  CHECK(contains(grows.finding("communication grows"),
                 "contradicted: communication grows while the number of messages falls: 4 devices: "
                 "10 ms x 250 at batch 50, 64 ms x 125 at batch 100; batch 100 needs 1.25 s "
                 "instead of 8 s."));
  const Result constant(with("comm_time", {"5.0", "2.5", "2.5", "1.25"}, "s"));
  CHECK(constant.finding("message grows").empty());
  CHECK(constant.finding("communication grows").empty());
  const Result falls(with("comm_time", {"30.0", "9.0", "2.5", "1.25"}, "s"));
  CHECK(falls.finding("message grows").empty());                             // more of it is hidden
  const Result later(with("comm_time", {"5.0", "2.5", "5.2", "4.0"}, "s"));  // 10 to 32 ms
  CHECK(contains(later.finding("communication grows"), "4 devices"));
  CHECK_FALSE(contains(later.finding("communication grows"), "2 devices"));
  const Result doubtful(with("comm_time", {"5.0", "9.0", "2.5", "8.9"}, "s"));
  CHECK(doubtful.finding("message grows").empty());  // 36 and 71 ms: less than 3 times
}

TEST_CASE("published: two clocks in one ratio, and in one report") {
  const auto clocks = [](const std::vector<const char*>& speedups) {
    Paper paper;
    const auto say = [&](const char* mode, int n, int batch, const char* a, const char* b) {
      paper.at(mode, n, batch).say("training_time", a, "s").say("running_time", b, "s");
    };
    say("single", 1, 32, "100.0", "140.0");
    say("single", 1, 64, "90.0", "130.0");
    std::size_t next = 0;
    for (const auto& [n, batch, training, running] :
         {std::tuple(2, 32, "60.0", "80.0"), std::tuple(4, 32, "35.0", "50.0"),
          std::tuple(2, 64, "50.0", "72.0"), std::tuple(4, 64, "30.0", "45.0")}) {
      say("ddp", n, batch, training, running);
      paper.say("speedup", speedups[next++], "1");
    }
    return paper;
  };
  // T(1) of running time over T(n) of training time: 140/60, 140/35, 130/50, 130/30.
  const Result mixed(clocks({"2.33", "4.00", "2.60", "4.33"}));
  const std::string text = mixed.finding("two clocks in one ratio");
  CHECK(contains(text, "T(n) is training_time, T(1) is running_time"));
  CHECK(contains(text,
                 "2 devices at batch 32: speedup 2.33; 1.67 by training_time, 1.75 by "
                 "running_time"));
  const Result one(clocks({"1.75", "2.80", "1.81", "2.89"}));
  CHECK(one.finding("two clocks").empty());
  // Beside a split by training time: 60 - 100/2, 35 - 100/4, 50 - 90/2, 30 - 90/4.
  Paper split = clocks({"1.75", "2.80", "1.81", "2.89"});
  split.at("ddp", 2, 32).say("comm_time", "10.0", "s");
  split.at("ddp", 4, 32).say("comm_time", "10.0", "s");
  split.at("ddp", 2, 64).say("comm_time", "5.0", "s");
  split.at("ddp", 4, 64).say("comm_time", "7.5", "s");
  CHECK(contains(Result(split).finding("speedup by running_time"), "comm_time by training_time"));
}

TEST_CASE("published: the volume of all links called bandwidth") {
  // 2(n-1)*S*iterations / 10 s with S = 1 MB: 2, 6, 2, 6 MB x 500, 250, 250, 125 / 10.
  AuditOptions options;
  options.message_bytes = 1e6;
  Paper paper = with("comm_time", {"10.00", "10.00", "10.00", "10.00"}, "s");
  paper = with("bandwidth", {"100.0", "150.0", "50.0", "75.0"}, "MB/s", paper);
  const std::string text = Result(paper, options).finding("volume of all links");
  CHECK(contains(text, "4 devices at batch 50: 150.0 MB/s, on one link 37.5 MB/s"));
  // busbw: 2(n-1)/n*S*iterations.
  Paper busbw = with("comm_time", {"10.00", "10.00", "10.00", "10.00"}, "s");
  busbw = with("bandwidth", {"50.0", "37.5", "25.0", "18.8"}, "MB/s", busbw);
  CHECK(Result(busbw, options).finding("volume of all links").empty());
}

TEST_CASE("published: more devices slower than one") {
  Paper paper;
  paper.at("single", 1, 32).say("epoch_time", "20.0", "s");
  paper.at("single", 1, 64).say("epoch_time", "30.0", "s");
  paper.at("ddp", 2, 32).say("epoch_time", "25.0", "s");  // faster than one with 64
  paper.at("ddp", 2, 64).say("epoch_time", "31.0", "s");  // by 3 %, which repeats explain
  CHECK(Result(paper).finding("slower than one").empty());
  paper.at("ddp", 4, 32).say("epoch_time", "22.0", "s");
  CHECK(contains(Result(paper).finding("slower than one"),
                 "4 devices at batch 32: epoch_time of 22 s against 20 s"));
}

TEST_CASE("published: bytes to send, and a number that is printed as approximate") {
  // 2(n-1)/n of 44,695,848 B: 0.0447 and 0.0670 GB.
  const Result result(with("bytes_to_send", {"0.0447", "0.0670", "0.0447", "0.0690"}, "GB"));
  CHECK(result.verdict("bytes_to_send", 4, 50) == "agrees");
  CHECK(result.verdict("bytes_to_send", 4, 100) == "differs: expected 0.0670");
  Paper paper;
  paper.at("ddp", 2, 32).say("compute_share", "~85", "%").say("comm_share", "~11", "%");
  paper.at("ddp", 4, 32).say("compute_share", "85", "%").say("comm_share", "11", "%");
  const std::string text = Result(paper).finding("do not sum");
  CHECK(contains(text, "4 devices at batch 32"));
  CHECK_FALSE(contains(text, "2 devices at batch 32"));
}
