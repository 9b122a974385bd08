// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/verdict/verdict.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analysis/tables/tables.h"
#include "analysis/verdict/clauses.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

/// The texts of a topic, one a line.
std::string said(const std::vector<VerdictClause>& clauses, const std::string& topic) {
  std::string text;
  for (const VerdictClause& clause : clauses)
    if (clause.topic() == topic) text += clause.text + "\n";
  return text;
}

void set_traffic(IterationRow& row) {
  for (RankIteration& rank : row.ranks)
    rank.traffic_bytes = {9216, 0, 512, 0, 256, 256};
}

}  // namespace

TEST_CASE("verdict: what binds an iteration takes four fifths of it, else the share is given") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 4, 32, 0.0010, 0.0086, 0.0004});
  write_study(folder / "b.h5", {"ddp", 4, 64, 0.0086, 0.0010, 0.0004});
  const auto clauses = make_verdict(loaded(folder));
  const std::string text = said(clauses, "bound");
  CHECK(contains(
      text,
      "ddp at 4 ranks with 32 images per rank is communication-bound: 86 % of the iteration "
      "is exposed communication, 10 % compute"));
  CHECK(contains(text,
                 "ddp at 4 ranks with 64 images per rank is compute-bound: 10 % of the iteration"));
  const auto bound = std::find_if(clauses.begin(), clauses.end(),
                                  [](const auto& clause) { return clause.topic() == "bound"; });
  CHECK(source_text(*bound) == "a.h5: /time/exposed, /time/compute, /time/iteration");
  CHECK(contains(bound->condition, "lenet, ddp, 4 ranks, 32 images per rank"));
  const RunFolder between;
  write_study(between / "a.h5", {"ddp", 4, 32, 0.0055, 0.0044, 0.0001});
  CHECK(said(make_verdict(loaded(between)), "bound") ==
        "ddp at 4 ranks with 32 images per rank: 44 % of the iteration is exposed communication, "
        "55 % compute\n");
}

TEST_CASE("verdict: weak and strong scaling are told apart from the runs and compared") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 1, 64, 0.010});
  write_study(folder / "b.h5", {"ddp", 4, 64, 0.010, 0.0025});   // weak: 10/12.5 = 80 %
  write_study(folder / "c.h5", {"ddp", 4, 16, 0.0025, 0.0025});  // strong: 10/5/4 = 50 %
  write_study(folder / "d.h5", {"none", 1, 64, 0.0101});         // runs differ by 1 %
  const std::string text = said(make_verdict(loaded(folder)), "scaling");
  CHECK(contains(text,
                 "weak scaling of ddp (64 images per rank): efficiency 80 % (no interval without "
                 "repeats) at 4 ranks against ddp at 1 rank"));
  CHECK(contains(text, "strong scaling of ddp (global batch 64): efficiency 50 %"));
  CHECK(contains(text,
                 "weak scaling keeps more of its efficiency here than strong scaling: 80 % "
                 "against 50 % at 4 ranks"));
  CHECK_FALSE(contains(text, "not measured"));
}

TEST_CASE("verdict: the kind of scaling that was not run is named with the run to make") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 1, 64, 0.010});
  write_study(folder / "b.h5", {"ddp", 2, 64, 0.010, 0.0025});
  const auto clauses = make_verdict(loaded(folder));
  CHECK(contains(said(clauses, "scaling"),
                 "strong scaling was not measured: run gradsync-train --model lenet --sync ddp "
                 "--batch-global 64 on 1, 2 ranks"));
  // What is missing stands after what is known, but for the cost, rests on no file, and is marked.
  CHECK(clauses.front().sentence == "cost.missing");
  const auto first_missing = std::find_if(clauses.begin() + 1, clauses.end(),
                                          [](const auto& clause) { return clause.missing; });
  CHECK(std::all_of(first_missing, clauses.end(), [](const auto& clause) {
    return clause.missing && source_text(clause).empty();
  }));
}

TEST_CASE("verdict: efficiency above 100 % is shown and questioned") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 1, 64, 0.012});
  write_study(folder / "b.h5", {"ddp", 2, 64, 0.010});
  CHECK(contains(said(make_verdict(loaded(folder)), "scaling"),
                 "an efficiency above 100 % (120 % at 2 ranks) is not a gain of communication"));
}

TEST_CASE(
    "verdict: why small batches scale worse is said where exposed communication is most of it") {
  const auto batches = [](const RunFolder& folder) {
    write_study(folder / "a.h5", {"ddp", 2, 32, 0.004, 0.0035, 0.0005});
    write_study(folder / "b.h5", {"ddp", 2, 128, 0.016, 0.004});
    return said(make_verdict(loaded(folder)), "batch");
  };
  {
    const RunFolder folder;
    CHECK(batches(folder) ==
          "from 128 to 32 images per rank compute goes from 16 ms to 4 ms, exposed communication "
          "from 4 ms to 3.5 ms, and its share of the iteration rises from 20 % to 44 %\n");
  }
  {
    const RunFolder folder;
    write_study(folder / "c.h5", {"ddp", 1, 32, 0.004});
    write_study(folder / "d.h5", {"ddp", 1, 128, 0.016});
    write_study(folder / "e.h5", {"none", 1, 128, 0.016});
    CHECK(contains(batches(folder),
                   "from 128 to 32 images per rank the efficiency at 2 ranks falls from 80 % to 50 "
                   "%; exposed communication accounts for 24 of these 30 points: small batches "
                   "scale worse because the exchange does not shrink with them"));
  }
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 2, 32, 0.009, 0.001});
  write_study(folder / "b.h5", {"ddp", 2, 128, 0.016, 0.004});
  CHECK(contains(said(make_verdict(loaded(folder)), "batch"),
                 "smaller batches do not expose more communication here: 10 % of the iteration"));
}

TEST_CASE("verdict: what crosses the wire besides gradients") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 2, 32, 0.01, 0.01, 0, 12, set_traffic});
  CHECK(said(make_verdict(loaded(folder)), "wire") ==
        "gradients are 90 % of the 10 KiB that cross a rank's link in an iteration; besides them: "
        "buffers 512 B (5.0 %), metrics 256 B (2.5 %), control 256 B (2.5 %)\n");
}

TEST_CASE("verdict: on which links traveling in 16 bits pays") {
  const RunFolder folder;
  const auto write = [&](const char* name, const char* wire, double convert_s) {
    StudyRun run{"ddp", 2, 32, 0.01, 0.01};
    run.change = [convert_s](IterationRow& row) {
      set_traffic(row);
      for (RankIteration& rank : row.ranks)
        rank[Phase::kConvert] = convert_s;
      row.ranks[0][Phase::kConvert] = convert_s / 2;
    };
    RunInfo info = study_info(run);
    info.config.push_back({"wire-dtype", wire, "command line"});
    auto&& recorder = recorder_of(folder / name, info);
    for (std::size_t i = 0; i < run.iterations; ++i)
      recorder.add(study_row(run, i));
    recorder.finish(RunStatus::kComplete);
  };
  write("a.h5", "bf16", 0.001);
  // 9,216 bytes saved in the millisecond of the slower rank, of steps of 20 ms.
  CHECK(
      said(make_verdict(loaded(folder)), "narrowing") ==
      "bf16 saves 9 KiB of a rank's link an iteration and costs 1.00 ms for converting values (5.0 "
      "% of the iteration): it shortens the iteration where the link carries less than 8.8 MiB/s "
      "in the collective\n");
  const RunFolder plain;
  write_study(plain / "a.h5", {"ddp", 2, 32, 0.01, 0.01, 0, 12, set_traffic});
  CHECK(said(make_verdict(loaded(plain)), "narrowing").empty());
}

TEST_CASE("verdict: the fastest is that of its devices where there are others") {
  const RunFolder folder;
  const auto write = [&](const std::string& name, const char* device, const char* mode, double s) {
    StudyRun run{mode, 4, 32, s};
    run.change_info = [=](RunInfo& info) {
      for (RankPlace& place : info.topology) {
        place.device = device;
        place.affinity = "0-15";
      }
    };
    write_study(folder / (name + ".h5"), run);
  };
  for (const double start : {0.99, 1.0, 1.01}) {
    write(fmt::format("a{}", start), "NVIDIA A100", "ddp", 0.01 * start);
    write(fmt::format("b{}", start), "NVIDIA A100", "allreduce", 0.02 * start);
  }
  const auto fastest = [&] { return said(make_verdict(loaded(folder)), "fastest"); };
  CHECK_MESSAGE(contains(fastest(), "with 32 images per rank ddp is the fastest"), fastest());
  write("c", "NVIDIA H100", "c10d", 0.005);
  CHECK_MESSAGE(contains(fastest(), "images per rank on NVIDIA A100 ddp is the fastest"),
                fastest());
}

TEST_CASE("verdict: a mode is called the fastest only beyond the interval") {
  const auto noisy = [](double scale) {
    return [scale](IterationRow& row) {
      for (RankIteration& rank : row.ranks)
        rank[Phase::kIteration] = scale * (0.010 + 0.001 * static_cast<double>(row.iteration % 5));
    };
  };
  const RunFolder folder;
  const auto write = [&](const char* mode, double scale) {
    for (const double start : {0.99, 1.0, 1.01})
      write_study(folder / fmt::format("{}{}.h5", mode, start),
                  {mode, 2, 32, 0.01, 0, 0, 40, noisy(scale * start)});
  };
  write("ddp", 1);
  write("allreduce", 1.01);
  CHECK(contains(said(make_verdict(loaded(folder)), "fastest"), "no significant difference"));
  write("allreduce", 2);
  CHECK(contains(said(make_verdict(loaded(folder)), "fastest"),
                 "ddp is the fastest of 2 modes that average gradients: 12 ms an iteration, "
                 "allreduce next with "));
}

TEST_CASE("verdict: one rank says that the cost was not measured") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"none", 1, 32});
  const auto clauses = make_verdict(loaded(folder));
  CHECK(contains(said(clauses, "cost"),
                 "run mpirun -n 2 gradsync-train --model lenet "
                 "--batch-per-rank 32 --compare none,ddp"));
  CHECK(contains(said(clauses, "measuring"),
                 "contenders ddp,ddp:stamps=off of gradsync-train --compare"));
  for (const VerdictClause& clause : clauses)
    CHECK(clause.missing);
}

TEST_CASE("verdict: nothing is claimed of runs without numbers") {
  const RunFolder folder;
  write_unmeasured(folder / "a.h5", 30);
  write_study(folder / "b.h5", {"ddp", 4, 32, 0.01, 0.01, 0, 0});
  write_study(folder / "c.h5", {"ddp", 1, 32, 0.01, 0.01, 0, 1});
  const auto clauses = make_verdict(loaded(folder));
  for (const VerdictClause& clause : clauses)
    CHECK_MESSAGE((clause.missing || clause.topic() == "wire"), clause.text);
  const std::string all = verdict_text(clauses) + verdict_markdown(clauses) + verdict_json(clauses);
  CHECK_FALSE(contains(all, "nan"));
  CHECK_FALSE(contains(all, "n/a"));
}

TEST_CASE("verdict: compute that grows with the ranks is not called communication") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 1, 64, 0.010});
  write_study(folder / "b.h5", {"ddp", 4, 64, 0.018, 0.002});
  CHECK(contains(
      said(make_verdict(loaded(folder)), "scaling"),
      "an iteration of ddp at 4 ranks takes 10 ms longer than at 1 rank: 8 ms (80 %) of that are "
      "compute, 2 ms (20 %) exposed communication\n"));
  CHECK_FALSE(contains(said(make_verdict(loaded(folder)), "scaling"), "points to cores"));
  write_study(folder / "c.h5", {"none", 1, 64, 0.011});  // runs differ by 10 %
  CHECK(contains(said(make_verdict(loaded(folder)), "scaling"), "that is 80 % of the loss"));
}

TEST_CASE("verdict: the batch that would scale, from the model") {
  // One bucket of 980,000 bytes, ready at the end: exposed on 4 ranks 6·0.1 + 1.47 = 2.07 ms
  // whatever the batch. Compute 2 ms + 0.1 ms·b. E = C/(C + 2.07) >= 0.8 from C = 8.28 ms, b
  // = 62.8.
  LawWorld world;
  world.bucket_bytes = {980000};
  const RunFolder folder;
  const auto write = [&](std::size_t ranks, std::int64_t batch) {
    StudyRun run = law_run(world, ranks, batch);
    run.change = [world, ranks](IterationRow& row) {
      row.buckets = {{980000, CollectiveKind::kAllReduce}};
      for (RankIteration& rank : row.ranks) {
        const double end_s = rank[Phase::kForward] + rank[Phase::kBackward];
        const double time_s = world.collective_s(980000, static_cast<double>(ranks));
        rank.buckets = {{end_s, end_s, end_s + time_s}};
        rank[Phase::kExposed] = ranks > 1 ? time_s : 0;
        rank[Phase::kIteration] = rank[Phase::kCompute] + rank[Phase::kExposed];
      }
    };
    write_study(folder / (std::to_string(ranks) + "-" + std::to_string(batch) + ".h5"), run);
  };
  for (const std::size_t ranks : {1U, 2U, 4U})
    for (const std::int64_t batch : {32, 128})
      write(ranks, batch);
  const auto clauses = make_verdict(loaded(folder));
  CHECK(contains(said(clauses, "batch"),
                 "of the batches from 32 to 128 per rank, the range measured, those of 63 to 128 "
                 "reach 80 % efficiency at 4 ranks (weak scaling)"));
  // 6 · 0.1 ms of latency against 1.5 · 980,000 B at 1 GB/s.
  CHECK(contains(said(clauses, "link"),
                 "bandwidth limits communication: of the 1 message of an iteration, latency "
                 "takes 600 µs and bytes 1.47 ms (1 GB/s); 28 % of the iteration is exposed "
                 "communication"));
}

TEST_CASE("verdict: its shares are those of the summary, where iterations differ") {
  const RunFolder folder;
  StudyRun run{"allreduce", 2};
  run.iterations = 14;  // 12 steady ones, of which each third exposes 3 ms
  run.change = [](IterationRow& row) {
    for (RankIteration& rank : row.ranks) {
      rank[Phase::kExposed] = rank[Phase::kCommBusy] = row.iteration % 3 == 2 ? 0.003 : 0;
      rank[Phase::kIteration] = rank[Phase::kCompute] + rank[Phase::kExposed];
    }
  };
  write_study(folder / "run.h5", run);
  const RunSet set = loaded(folder);
  CHECK(contains(said(make_verdict(set), "bound"), "9.1 % of the iteration is exposed"));
  const Table table = make_summary_table(set, {});
  CHECK(table.rows[0][column_of(table, "exposed_percent")].number == doctest::Approx(100.0 / 11));
}

TEST_CASE("verdict: without calibration and with one size of message the link is not judged") {
  LawWorld world;
  world.bucket_bytes = {1000000};
  const RunFolder folder;
  write_study(folder / "a.h5", law_run(world, 2, 16));
  const auto clauses = make_verdict(loaded(folder));
  CHECK(contains(said(clauses, "link"),
                 "whether latency or bandwidth limits communication is unknown"));
  CHECK(contains(said(clauses, "link"), "--calibrate"));
  CHECK_FALSE(contains(said(clauses, "batch"), "reaches"));
}

TEST_CASE("verdict: of several networks each sentence names its own, and equal ones are one") {
  const auto clauses_of = [](std::vector<StudyRun> study) {
    const RunFolder folder;
    for (std::size_t i = 0; i < study.size(); ++i)
      write_study(folder / (std::to_string(i) + ".h5"), study[i]);
    return make_verdict(loaded(folder));
  };
  const StudyRun small{"ddp", 2, 32, 0.010, 0.0001}, large{"ddp", 2, 32, 0.005, 0.005};
  const auto one = clauses_of({small}), two = clauses_of({small, of_network(large, "other")});
  CHECK(said(one, "networks").empty());
  CHECK(contains(said(one, "bound"), "ddp at 2 ranks with 32 images per rank is compute-bound"));
  CHECK(said(two, "networks") ==
        "exposed communication of ddp at 2 ranks with 32 images per rank, 2 networks: from 0.99 % "
        "(lenet) to 50 % (other) of the iteration\n");
  CHECK(contains(said(two, "bound"),
                 "\nother: ddp at 2 ranks with 32 images per rank: 50 % of the iteration"));
  const StudyRun one_bucket = law_run({0.002, 1e-4, 1e-4, 1e-9, {1000000}}, 2, 16);
  const auto equal = clauses_of({one_bucket, of_network(one_bucket, "other")});
  CHECK(said(equal, "link").starts_with("lenet, other: whether latency or bandwidth limits"));
  // On a terminal the comparison, and what would reduce the cost.
  const std::string shown = verdict_text(two, 90), all = verdict_text(two);
  CHECK(contains(shown, "exposed communication of ddp"));
  CHECK(contains(shown, "more sentences)"));
  CHECK_FALSE(contains(shown, "is compute-bound"));
  CHECK(contains(all, "lenet: ddp at 2 ranks with 32 images per rank is compute-bound"));
  CHECK(contains(verdict_text(one, 90), "is compute-bound"));
}

TEST_CASE("verdict: text, Markdown and JSON hold the same clauses") {
  VerdictClause clause{"bound.share", "a < b", {"1.h5", "2.h5", "3.h5", "4.h5"}, "/x", "c"};
  CHECK(verdict_text({clause}) ==
        "Verdict\n- a < b.\n    holds for: c\n    from: 1.h5, 2.h5, 3.h5 and 1 more: /x\n");
  CHECK(contains(verdict_markdown({clause}), "- a < b. Holds for: c. From: `1.h5, 2.h5, 3.h5 and"));
  const auto parsed = nlohmann::json::parse(verdict_json({clause}));
  CHECK(parsed[0]["files"].size() == 4);
  CHECK(parsed[0]["topic"] == "bound");
  CHECK(parsed[0]["sentence"] == "bound.share");
  CHECK(parsed[0]["missing"] == false);
  clause.files = {"bad \xff byte.h5"};
  CHECK_NOTHROW(nlohmann::json::parse(verdict_json({clause})));
  CHECK(verdict_text({}) == "Verdict\n  the runs hold no data for a verdict\n");
}

TEST_CASE("verdict: shares are shown with two digits that matter") {
  CHECK(percent_text(0.614) == "61 %");
  CHECK(percent_text(0.0234) == "2.3 %");
  CHECK(percent_text(0.00042) == "0.04 %");
  CHECK(percent_text(0) == "0 %");
  CHECK(percent_text(1.2) == "120 %");
  CHECK(interval_text({0.5, 0.4, 0.6, 9}) == " (40 % to 60 %)");
  CHECK(interval_text({0.5, kNotMeasured, kNotMeasured, 3}) == " (no interval without repeats)");
}

TEST_CASE("verdict: a bucket cap is advised by the name that the program of the run has for it") {
  const auto advice = [](const char* mode) {
    LawWorld world;
    world.alpha_s = 1e-6;
    world.beta_s_per_byte = 7.75e-11;
    world.bucket_bytes = {20 << 20};
    const RunFolder folder;
    for (const std::size_t ranks : {2U, 4U}) {
      StudyRun run = law_run(world, ranks, 32);
      run.mode = mode;
      write_study(folder / (std::to_string(ranks) + ".h5"), run);
    }
    const auto clauses = make_verdict(loaded(folder));
    return said(clauses, "reduce") + said(clauses, "faster");
  };
  CHECK(contains(advice("ddp"), "% with --bucket-cap "));
  CHECK(contains(advice("ddp"),
                 "% by a link of 200 Gbit/s (now 103); after that no faster link saves more than "
                 "0 %"));
  const std::string of_trace = advice("pytorch-ddp");
  CHECK(contains(of_trace, "% with bucket_cap_mb="));
  CHECK_FALSE(contains(of_trace, "--"));
}

TEST_CASE("verdict: accumulation is advised as twice the run's own, and to runs that have it") {
  const auto advice = [](const std::string& mode, const char* passes) {
    StudyRun run{mode, 2, 32, 0.010, 0.005};
    run.change_info = [passes](RunInfo& info) {
      if (*passes != 0) info.config.push_back({"accumulate", passes, "command line"});
    };
    const RunFolder folder;
    write_study(folder / "a.h5", run);
    return said(make_verdict(loaded(folder)), "reduce");
  };
  CHECK(contains(advice("gather-scatter", ""), "17 % with --accumulate 2 (per image"));
  CHECK(contains(advice("gather-scatter", "1"), "with --accumulate 2 (per image"));
  CHECK(contains(advice("gather-scatter", "4"), "17 % with --accumulate 8 (per image"));
  CHECK(contains(advice("data-parallel", "3"), "with --accumulate 6 (per image"));
  // A trace of PyTorch, a mode of another version, and one that exchanges in each pass.
  for (const char* other : {"pytorch", "pytorch-ddp", "later-mode", "fsdp"})
    CHECK_FALSE(contains(advice(other, ""), "--accumulate"));
}
