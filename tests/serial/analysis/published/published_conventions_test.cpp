// Which formula made a column: worked by hand from the times of published_paper.h.

#include <cmath>

#include <doctest/doctest.h>

#include "serial/published_paper.h"

using namespace gradsync;
using namespace gradsync::report::published;
using namespace gradsync::report::published::testing;

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
  CHECK(contains(Result(paper).finding("no known message"), "message has 30"));
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
  CHECK(epoch_iterations(50000, 64, report::published::LastBatch::kCounted) == 782);
  CHECK(epoch_iterations(50000, 64, report::published::LastBatch::kLeftOut) == 781);
  CHECK(epoch_iterations(50000, 64, report::published::LastBatch::kFraction) == 781.25);
  CHECK(epoch_iterations(50000, 1e9, report::published::LastBatch::kLeftOut) == 1);
  CHECK(std::isnan(epoch_iterations(50000, NAN, report::published::LastBatch::kCounted)));
}
