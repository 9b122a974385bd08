// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

/// For each sentence of the verdict data in which it holds, and data in which it would be false,
/// which differ in little else.
using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

using Study = std::vector<StudyRun>;

struct SentencePair {
  std::string_view sentence;
  const char* why_false;
  Study holds, false_of;
};

/// With a second run of each mode on one rank, `factor` slower: the spread of runs of the same
/// work.
Study with_control(Study study, double factor = 1) {
  const Study runs = study;
  for (const StudyRun& run : runs)
    if (run.ranks == 1) {
      study.push_back({"none", 1, run.batch_per_rank, run.compute_s * factor});
      return study;
    }
  study.push_back({"none", 1, 32, 0.010});
  study.push_back({"ddp", 1, 32, 0.010 * factor});
  return study;
}

/// One bucket, ready at the end of the backward pass, so that what it exposes does not depend on
/// the batch: on 4 ranks 6·0.1 ms + 1.47 ms. Compute 2 ms + 0.1 ms·b; the efficiency of weak
/// scaling is 80 % at 62.8 images per rank. `stretch` is how much longer 4 ranks take than any law
/// says.
Study one_bucket(const std::vector<std::int64_t>& batches, double per_image_s = 1e-4,
                 double stretch = 1) {
  LawWorld world;
  world.bucket_bytes = {980000};
  world.per_image_s = per_image_s;
  Study study;
  for (const std::size_t ranks : {1U, 2U, 4U})
    for (const std::int64_t batch : batches) {
      study.push_back(law_run(world, ranks, batch));
      study.back().change = [world, ranks, stretch](IterationRow& row) {
        row.buckets = {{980000, CollectiveKind::kAllReduce}};
        for (RankIteration& rank : row.ranks) {
          const double end_s = rank[Phase::kForward] + rank[Phase::kBackward];
          const double time_s = world.collective_s(980000, static_cast<double>(ranks));
          rank.buckets = {{end_s, end_s, end_s + time_s}};
          rank[Phase::kExposed] = ranks > 1 ? time_s : 0;
          rank[Phase::kIteration] = rank[Phase::kCompute] + rank[Phase::kExposed];
          if (ranks == 4) rank[Phase::kIteration] *= stretch;
        }
      };
    }
  return study;
}

/// Two buckets, ready at the end of the backward pass, take 0.8 ms on 2 ranks. Compute takes 10 ms
/// + 1 ms an image on one rank, `per_image_s` an image on two: the efficiency falls with the batch.
/// With 4 images 2 ranks take `stretch` times as long.
Study shared_memory_bandwidth(double per_image_s, double stretch = 1) {
  LawWorld world;
  world.constant_s = 0.010;
  world.beta_s_per_byte = 1e-10;
  Study study;
  for (const std::size_t ranks : {1U, 2U})
    for (const std::int64_t batch : {4, 16, 32, 64}) {
      world.per_image_s = ranks == 1 ? 1e-3 : per_image_s;
      study.push_back(law_run(world, ranks, batch));
      study.back().change = [world, ranks,
                             by = batch == 4 && ranks == 2 ? stretch : 1](IterationRow& row) {
        row.buckets = {{1000000, CollectiveKind::kAllReduce},
                       {3000000, CollectiveKind::kAllReduce}};
        for (RankIteration& rank : row.ranks) {
          const double ready_s = rank[Phase::kForward] + rank[Phase::kBackward];
          double end_s = ready_s;
          for (const BucketShape& bucket : row.buckets) {
            const double start_s = end_s;
            end_s +=
                world.collective_s(static_cast<double>(bucket.bytes), static_cast<double>(ranks));
            rank.buckets.push_back({ready_s, start_s, end_s});
          }
          rank[Phase::kExposed] = ranks > 1 ? end_s - ready_s : 0;
          rank[Phase::kIteration] = by * (rank[Phase::kCompute] + rank[Phase::kExposed]);
        }
      };
    }
  return study;
}

/// `study`, of which each iteration exposes `exposed_s`, whatever its buckets would.
Study exposing(Study study, double exposed_s) {
  for (StudyRun& run : study)
    run.change = [exposed_s, before = run.change](IterationRow& row) {
      before(row);
      for (RankIteration& rank : row.ranks) {
        rank[Phase::kExposed] = exposed_s;
        rank[Phase::kIteration] = rank[Phase::kCompute] + exposed_s;
      }
    };
  return study;
}

/// Three starts of each run, whose iterations take these times the first one's.
Study starts_of(const Study& study, const std::array<double, 3>& factors) {
  Study all;
  for (const StudyRun& run : study)
    for (const double factor : factors) {
      all.push_back(run);
      all.back().change = [factor, before = run.change](IterationRow& row) {
        before(row);
        for (RankIteration& rank : row.ranks)
          rank[Phase::kIteration] *= factor;
      };
    }
  return all;
}

/// Three starts that hardly differ, and three that do.
Study repeated(const Study& study) {
  return starts_of(study, {1, 1.001, 1.002});
}
Study scattered(const Study& study) {
  return starts_of(study, {0.9, 1, 1.1});
}

/// Three starts of three modes, of which the last one's take 94, 104 and 114 ms.
Study three_modes(double second_s) {
  Study study = starts_of({{"gather-scatter", 2, 32, 0.104}}, {0.94 / 1.04, 1, 1.14 / 1.04});
  for (const StudyRun& run :
       starts_of({{"allreduce", 2, 32, 0.1}, {"ddp", 2, 32, second_s}}, {1, 1.0001, 1.0002}))
    study.push_back(run);
  return study;
}

StudyRun of_schema(StudyRun run, int schema) {
  run.schema = schema;
  return run;
}

StudyRun with_option(StudyRun run, const std::string& name, const std::string& value) {
  run.change_info = [name, value, before = run.change_info](RunInfo& info) {
    before(info);
    info.config.push_back({name, value, "command line"});
  };
  return run;
}

/// Four buckets on 2 and 4 ranks.
Study four_buckets(std::int64_t smallest_bytes, double alpha_s = 1e-4,
                   double beta_s_per_byte = LawWorld().beta_s_per_byte) {
  LawWorld world;
  world.alpha_s = alpha_s;
  world.beta_s_per_byte = beta_s_per_byte;
  for (std::size_t i = 0; i < world.bucket_bytes.size(); ++i)
    world.bucket_bytes[i] = smallest_bytes * static_cast<std::int64_t>(1 + i);
  return {law_run(world, 2, 32), law_run(world, 4, 32)};
}

/// On 5.2 Gbit/s: the next link that is sold, of 10, is less than twice as fast.
Study on_half_a_link() {
  return four_buckets(1 << 20, 1e-4, 1.55e-9);
}

StudyRun noisy(const std::string& mode, double scale, std::size_t iterations = 40) {
  StudyRun run{mode, 2, 32, 0.01, 0, 0, iterations};
  run.change = [scale](IterationRow& row) {
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] = scale * (0.010 + 0.001 * static_cast<double>(row.iteration % 5));
  };
  return run;
}

StudyRun with_traffic(StudyRun run, std::array<std::int64_t, kRowCategories> bytes) {
  run.change = [bytes](IterationRow& row) {
    for (RankIteration& rank : row.ranks) {
      rank.traffic_bytes = bytes;
      rank[Phase::kConvert] = 0.001;
    }
  };
  return run;
}

StudyRun with_wire(StudyRun run, const std::string& type) {
  run.change_info = [type](RunInfo& info) {
    info.config.push_back({"wire-dtype", type, "command line"});
  };
  return run;
}

/// Windows in which an iteration with measuring takes `ratio` times that without, give or take 1 %.
StudyRun with_windows(std::int64_t rounds, double ratio) {
  StudyRun run{"ddp", 2, 32, 0.01, 0.01};
  run.add_more = [rounds, ratio](MadeRun& recorder) {
    for (std::int64_t round = 0; round < rounds; ++round)
      for (const auto& [kind, time_s] :
           {std::pair{"overlapped", 0.02 * ratio}, std::pair{"overlapped-unmeasured", 0.02}})
        recorder.add(
            WindowRow{kind,
                      round,
                      5,
                      {2, RankWindow{time_s * (round % 2 == 0 ? 1.01 : 1), 0.01, 0.01, 0.01}}});
  };
  return run;
}

StudyRun with_gpu(StudyRun run) {
  run.add_more = [](MadeRun& recorder) {
    for (const DeviceSample& sample : sample_device_samples())
      recorder.add(sample);
  };
  return run;
}

StudyRun with_probe(StudyRun run) {
  run.add_more = [](MadeRun& recorder) {
    for (const LayerRow& layer : sample_layers())
      recorder.add(layer);
    for (const ProbeRow& probe : sample_probes(4))
      recorder.add(probe);
  };
  return run;
}

StudyRun on_own_hosts(StudyRun run) {
  run.change_info = [](RunInfo& info) {
    for (RankPlace& place : info.topology)
      place.host = "node" + std::to_string(place.rank);
  };
  return run;
}

Study on_one_host(Study study) {
  for (StudyRun& run : study)
    run.change_info = [before = run.change_info](RunInfo& info) {
      before(info);
      for (RankPlace& place : info.topology)
        place.host = "node0";
    };
  return study;
}

Study in_bf16(Study study) {
  for (StudyRun& run : study)
    run = with_wire(run, "bf16");
  return study;
}

/// A contender of one job, whose iterations take `jitter` more and less in turn.
StudyRun contender(const std::string& name, StudyRun run, double jitter) {
  run.change_info = [name](RunInfo& info) {
    info.experiment = {
        {"id", "1"}, {"contender", name}, {"contenders", "none,ddp,allreduce,none (control)"}};
  };
  run.change = [jitter](IterationRow& row) {
    row.round = row.iteration;
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] *= 1 + (row.iteration % 2 == 0 ? jitter : -jitter);
  };
  return run;
}

/// Modes that expose so much of 10 ms, and the control.
Study compared(double ddp_s, double allreduce_s, double jitter = 0, std::size_t iterations = 12) {
  return {contender("none", {"none", 2, 32, 0.010, 0, 0, iterations}, 0),
          contender("ddp", {"ddp", 2, 32, 0.010, ddp_s, 0, iterations}, jitter),
          contender("allreduce", {"allreduce", 2, 32, 0.010, allreduce_s, 0, iterations}, 0),
          contender("none (control)", {"none", 2, 32, 0.010, 0, 0, iterations}, 0.004)};
}

/// A further job on more ranks in which all contenders exchange.
Study with_four_ranks(Study study) {
  for (const char* name : {"ddp", "allreduce"}) {
    StudyRun run = contender(name, {name, 4, 32, 0.011}, 0);
    run.change_info = [name](RunInfo& info) {
      info.experiment = {{"id", "2"}, {"contender", name}, {"contenders", "ddp,allreduce"}};
    };
    study.push_back(run);
  }
  return study;
}

/// ddp, and ddp without stamps, of which an iteration takes 1/`ratio`.
Study with_and_without_stamps(double ratio) {
  StudyRun without = contender("ddp:stamps=off", {"ddp", 2, 32, 0.010}, 0);
  without.change_info = [change = without.change_info](RunInfo& info) {
    change(info);
    info.config.push_back({"stamps", "off", "command line"});
  };
  return {contender("ddp", {"ddp", 2, 32, 0.010 * ratio}, 0), without};
}

/// ddp, and a setting that was predicted to take 0.8 of its time and takes `factor` of it.
Study advised(double factor, double jitter = 0) {
  Study study = compared(0.002, 0.003);
  StudyRun tried = contender("ddp:wire-dtype=bf16", {"ddp", 2, 32, 0.012 * factor}, jitter);
  tried.change_info = [](RunInfo& info) {
    info.experiment = {{"id", "1"},
                       {"contender", "ddp:wire-dtype=bf16"},
                       {"contenders", "none,ddp,allreduce,none (control),ddp:wire-dtype=bf16"},
                       {"joined", "0"},
                       {"against", "ddp"},
                       {"predicted", "0.8"},
                       {"predicted_low", "0.75"},
                       {"predicted_high", "0.8"}};
  };
  study.push_back(tried);
  return study;
}

/// ddp, and a mode that changes the training and takes `factor` of its time.
Study changed(double factor, double jitter = 0) {
  Study study = compared(0.002, 0.003);
  study[2] = contender("powersgd", {"powersgd", 2, 32, 0.012 * factor}, jitter);
  const auto sends = [](StudyRun& run, std::int64_t bytes, double convert_s) {
    run.change = [=, in_turn = run.change](IterationRow& row) {
      in_turn(row);
      for (RankIteration& rank : row.ranks) {
        rank[Phase::kConvert] = convert_s;
        rank.traffic_bytes[static_cast<std::size_t>(Traffic::kGradients)] = bytes;
      }
    };
  };
  sends(study[1], 8 << 20, kNotMeasured);
  sends(study[2], 1 << 20, 0.001);
  return study;
}

/// A further mode of so few rounds that its ratio has no interval, which is the fastest.
Study with_few_rounds(Study study) {
  study.push_back(contender("top-k", {"top-k", 2, 32, 0.005, 0, 0, 7}, 0));
  return study;
}

Study without(Study study, std::size_t left_out) {
  study.erase(study.begin() + static_cast<std::ptrdiff_t>(left_out));
  return study;
}

/// Three ranks, of which one takes `late_s` longer for a phase, and the others wait for it: rank 1,
/// or each in turn.
StudyRun late(Phase phase, double late_s, bool in_turn = false) {
  StudyRun run{"ddp", 3, 32, 0.010};
  run.change = [=](IterationRow& row) {
    const std::size_t last = in_turn ? static_cast<std::size_t>(row.iteration % 3) : 1;
    for (std::size_t rank = 0; rank < row.ranks.size(); ++rank) {
      RankIteration& one = row.ranks[rank];
      one[Phase::kIteration] += late_s;
      one[rank == last ? phase : Phase::kWait] += late_s;
      if (rank == last) one[phase == Phase::kData ? Phase::kOther : Phase::kCompute] += late_s;
    }
  };
  return run;
}

/// Every rank needs `rest_s` beside compute, rank 1 twice as much, in which it waits for data or
/// not.
StudyRun resting(double rest_s, bool data) {
  StudyRun run{"ddp", 2, 32, 0.010};
  run.change = [=](IterationRow& row) {
    for (std::size_t rank = 0; rank < row.ranks.size(); ++rank) {
      const double own_s = rest_s * (rank == 1 ? 2 : 1);
      row.ranks[rank][Phase::kIteration] += own_s;
      row.ranks[rank][Phase::kOther] += own_s;
      if (data) row.ranks[rank][Phase::kData] = own_s;
    }
  };
  return run;
}

const StudyRun kFour = {"ddp", 4, 64, 0.010, 0.0025};
const StudyRun kOne = {"ddp", 1, 64, 0.010};

const std::vector<SentencePair> kPairs = {
    {"cost.measured", "the control differs as much", compared(0.002, 0.003),
     compared(0.0001, 0.003, 0.02)},
    {"cost.measured", "no job measured it", with_four_ranks(compared(0.002, 0.003)),
     with_four_ranks({})},
    {"cost.none", "it is beyond noise", compared(0.0001, 0.003, 0.02), compared(0.002, 0.003)},
    {"cost.none", "it is beyond the control's", compared(0.00003, 0.003), compared(0.002, 0.003)},
    {"cost.few", "there are 10 rounds", compared(0.002, 0.003, 0, 7), compared(0.002, 0.003)},
    {"cost.starts",
     "there are three starts of each",
     {{"none", 2, 32, 0.010}, {"ddp", 2, 32, 0.010, 0.002}},
     scattered({{"none", 2, 32, 0.010}, {"ddp", 2, 32, 0.010, 0.002}})},
    {"cost.repeats",
     "each is one start",
     scattered({{"none", 2, 32, 0.010}, {"ddp", 2, 32, 0.010, 0.002}}),
     {{"none", 2, 32, 0.010}, {"ddp", 2, 32, 0.010, 0.002}}},
    {"cost.missing", "it was run without an exchange", {kFour}, {kFour, {"none", 4, 64, 0.010}}},
    {"cost.missing", "a contender exchanges nothing",
     without(without(compared(0.002, 0.003), 3), 0), compared(0.002, 0.003)},
    {"cost.missing", "several ranks were run", {kOne}, {kOne, on_cores(kFour, "0-1")}},
    {"advice.faster", "it is slower", advised(0.9), advised(1.2)},
    {"advice.slower", "it is faster", advised(1.2), advised(0.9)},
    {"advice.noise", "the difference is beyond noise", advised(1.001, 0.05), advised(0.9)},
    {"advice.noise", "the difference is beyond the control's", advised(0.998), advised(0.9)},
    {"changed.faster", "it is slower", changed(0.7), changed(1.2)},
    {"changed.slower", "it is faster", changed(1.2), changed(0.7)},
    {"changed.noise", "the difference is beyond noise", changed(1.001, 0.05), changed(0.7)},
    {"changed.noise", "the difference is beyond the control's", changed(1.002), changed(0.7)},
    {"changed.faster", "it is slower where nothing travels", changed(0.82, 0.05), changed(1.2)},
    {"changed.faster", "no contender changes the training", changed(0.7), compared(0.002, 0.003)},
    {"changed.faster", "the faster one has no interval", with_few_rounds(changed(0.7)),
     with_few_rounds(changed(1.2))},
    {"changed.few", "each has its interval", with_few_rounds(changed(0.7)), changed(0.7)},
    {"control.noise", "there was no control", compared(0.002, 0.003),
     without(compared(0.002, 0.003), 3)},
    {"late.rank",
     "the ranks are late in turn",
     {late(Phase::kForward, 0.004)},
     {late(Phase::kForward, 0.004, true)}},
    {"late.rank", "they wait 3 %", {late(Phase::kData, 0.004)}, {late(Phase::kData, 0.0004)}},
    {"late.ranks",
     "it is one rank",
     {late(Phase::kForward, 0.004, true)},
     {late(Phase::kForward, 0.004)}},
    {"rest.data", "it is not data", {resting(0.002, true)}, {resting(0.002, false)}},
    {"rest.data", "others wait for it", {resting(0.002, true)}, {late(Phase::kData, 0.004)}},
    {"rest.other", "it is 3 %", {resting(0.002, false)}, {resting(0.0002, false)}},
    {"faster.options", "gradients travel in 16 bits already", on_half_a_link(),
     in_bf16(on_half_a_link())},
    {"faster.options", "the exchange takes next to nothing", on_half_a_link(),
     four_buckets(64, 1e-9)},
    {"faster.options", "the ranks share a host", on_half_a_link(), on_one_host(on_half_a_link())},
    {"faster.link", "options save as much", in_bf16(four_buckets(1 << 20)), on_half_a_link()},
    {"faster.none", "half of an iteration is exposed", four_buckets(64, 1e-9),
     four_buckets(1 << 20)},
    {"cores.oversubscribed",
     "every thread has a core",
     {on_cores(kFour, "0-1")},
     {on_cores(kFour, "0-3")}},
    {"cores.shared",
     "the rank had its core while it did not wait",
     {with_cpu_time({"ddp", 4, 64, 0.010, 0.0025}, 0.5)},
     {with_cpu_time({"ddp", 4, 64, 0.010, 0.0025}, 0.8)}},
    {"spread.wide", "runs of the same work differ by 5 %", with_control({kOne, kFour}, 1.3),
     with_control({kOne, kFour}, 1.05)},
    {"bound.communication",
     "it is 61 % of the iteration",
     {{"ddp", 4, 32, 0.001, 0.009}},
     {{"ddp", 4, 32, 0.003, 0.0061, 0.0009}}},
    {"bound.communication",
     "there were fewer cores than threads",
     {on_cores({"ddp", 4, 32, 0.001, 0.009}, "0-3")},
     {on_cores({"ddp", 4, 32, 0.001, 0.009}, "0-1")}},
    {"bound.compute",
     "44 % is exposed communication",
     {{"ddp", 4, 32, 0.009, 0.001}},
     {{"ddp", 4, 32, 0.0055, 0.0044, 0.0001}}},
    {"bound.compute",
     "there were fewer cores than threads",
     {on_cores({"ddp", 4, 32, 0.009, 0.001}, "0-3")},
     {on_cores({"ddp", 4, 32, 0.009, 0.001}, "0-1")}},
    {"bound.share",
     "compute is 90 % of the iteration",
     {{"ddp", 4, 32, 0.0055, 0.0044, 0.0001}},
     {{"ddp", 4, 32, 0.009, 0.001}}},
    {"scaling.weak",
     "there were fewer cores than threads",
     {kOne, kFour},
     {kOne, on_cores(kFour, "0-1")}},
    {"scaling.weak",
     "the batches differ",
     {{"ddp", 1, 1, 0.010}, {"ddp", 4, 1, 0.010, 0.0025}},
     {{"ddp", 1, 1, 0.010}, {"ddp", 4, 2, 0.010, 0.0025}}},
    {"scaling.strong",
     "neither batch is the same",
     {kOne, {"ddp", 4, 16, 0.0025, 0.0025}},
     {kOne, {"ddp", 4, 32, 0.0025, 0.0025}}},
    {"scaling.above-100",
     "it is 100 %",
     {kOne, {"ddp", 4, 64, 0.008}},
     {kOne, {"ddp", 4, 64, 0.010}}},
    {"scaling.growth", "nothing was lost", {kOne, kFour}, {kOne, {"ddp", 4, 64, 0.010}}},
    {"scaling.shared-host", "compute is 20 % of the loss",
     with_control({kOne, {"ddp", 4, 64, 0.018, 0.002}}),
     with_control({kOne, {"ddp", 4, 64, 0.012, 0.008}})},
    {"scaling.shared-host", "each rank has a host",
     with_control({kOne, {"ddp", 4, 64, 0.018, 0.002}}),
     with_control({kOne, on_own_hosts({"ddp", 4, 64, 0.018, 0.002})})},
    {"scaling.shared-host", "runs of the same work differ by more",
     with_control({kOne, {"ddp", 4, 64, 0.018, 0.002}}),
     with_control({kOne, {"ddp", 4, 64, 0.018, 0.002}}, 2.5)},
    {"scaling.kinds", "runs of the same work differ by more",
     with_control({kOne, kFour, {"ddp", 4, 16, 0.0025, 0.0025}}),
     with_control({kOne, kFour, {"ddp", 4, 16, 0.0025, 0.0025}}, 1.8)},
    {"scaling.missing",
     "it was run, though oversubscribed",
     {kOne, {"ddp", 2, 64, 0.012}},
     {kOne, {"ddp", 2, 64, 0.012}, on_cores({"ddp", 4, 16, 0.005}, "0-1")}},
    {"batch.from", "63 was not in the range measured", one_bucket({32, 128}), one_bucket({16, 32})},
    {"batch.from", "cells left out are predicted with errors above 20 %", one_bucket({32, 128}),
     one_bucket({32, 128}, 1e-4, 2)},
    {"batch.all", "32 does not reach it", one_bucket({128, 256}), one_bucket({32, 128})},
    {"batch.all", "compute does not depend on the batch as measured", one_bucket({128, 256}),
     one_bucket({128, 256}, -1e-6)},
    {"batch.none", "128 reaches it", one_bucket({16, 32}), one_bucket({32, 128})},
    {"batch.none", "compute does not depend on the batch as measured", one_bucket({16, 32}),
     one_bucket({16, 32}, -1e-6)},
    {"batch.all", "efficiency falls with the batch", shared_memory_bandwidth(1.1e-3),
     shared_memory_bandwidth(1.4e-3)},
    {"batch.measured", "model and measurement agree", shared_memory_bandwidth(1.4e-3, 1.09),
     shared_memory_bandwidth(1.4e-3)},
    {"batch.communication", "it accounts for 1 of 30 points",
     with_control({{"ddp", 1, 32, 0.004},
                   {"ddp", 1, 128, 0.016},
                   {"ddp", 2, 32, 0.004, 0.004},
                   {"ddp", 2, 128, 0.016, 0.004}}),
     with_control({{"ddp", 1, 32, 0.004},
                   {"ddp", 1, 128, 0.016},
                   {"ddp", 2, 32, 0.0076, 0.0004},
                   {"ddp", 2, 128, 0.0192, 0.0008}})},
    {"batch.loss", "exposed communication is the main cause",
     with_control({{"ddp", 1, 32, 0.004},
                   {"ddp", 1, 128, 0.016},
                   {"ddp", 2, 32, 0.0076, 0.0004},
                   {"ddp", 2, 128, 0.0192, 0.0008}}),
     with_control({{"ddp", 1, 32, 0.004},
                   {"ddp", 1, 128, 0.016},
                   {"ddp", 2, 32, 0.004, 0.004},
                   {"ddp", 2, 128, 0.016, 0.004}})},
    {"batch.share",
     "the share falls",
     {{"ddp", 2, 32, 0.004, 0.004}, {"ddp", 2, 128, 0.016, 0.004}},
     {{"ddp", 2, 32, 0.009, 0.001}, {"ddp", 2, 128, 0.016, 0.004}}},
    {"batch.no-more",
     "a batch between exposes more",
     {{"ddp", 2, 32, 0.009, 0.001}, {"ddp", 2, 64, 0.012, 0.002}, {"ddp", 2, 128, 0.016, 0.004}},
     {{"ddp", 2, 32, 0.009, 0.001}, {"ddp", 2, 64, 0.006, 0.004}, {"ddp", 2, 128, 0.016, 0.004}}},
    {"batch.no-more",
     "the share rises",
     {{"ddp", 2, 32, 0.009, 0.001}, {"ddp", 2, 128, 0.016, 0.004}},
     {{"ddp", 2, 32, 0.004, 0.004}, {"ddp", 2, 128, 0.016, 0.004}}},
    {"fastest.mode", "one of them records nothing", compared(0.002, 0.003),
     with_and_without_stamps(1.2)},
    {"fastest.mode", "contenders of one job differ by less than noise", compared(0.002, 0.003),
     compared(0.002, 0.0021, 0.02)},
    {"fastest.noise", "they differ by more than the control", compared(0.002, 0.00203),
     compared(0.002, 0.003)},
    {"fastest.equal", "contenders of one job differ", compared(0.002, 0.0021, 0.02),
     compared(0.002, 0.003)},
    {"fastest.mode", "starts of each differ by more",
     repeated({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}}),
     scattered({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}})},
    {"fastest.mode",
     "each was started once",
     repeated({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}}),
     {{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}}},
    {"fastest.mode", "the first does not differ from the third",
     repeated({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}}), three_modes(0.103)},
    {"fastest.equal", "the settings differ in what is learned",
     scattered({noisy("ddp", 1), with_option(noisy("ddp", 1.01), "bucket-cap", "1MiB")}),
     scattered({noisy("ddp", 1), with_option(noisy("ddp", 1.01), "lr", "0.4")})},
    {"fastest.mode", "there were fewer cores than threads",
     repeated(
         {on_cores({"ddp", 2, 32, 0.010}, "0-1"), on_cores({"allreduce", 2, 32, 0.012}, "0-1")}),
     repeated({on_cores({"ddp", 2, 32, 0.010}, "0"), on_cores({"allreduce", 2, 32, 0.012}, "0")})},
    {"fastest.equal", "one takes twice the time",
     scattered({noisy("ddp", 1), noisy("allreduce", 1.01)}),
     scattered({noisy("ddp", 1), noisy("allreduce", 2)})},
    {"fastest.spread", "they differ by more",
     with_control({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}}, 1.3),
     with_control({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.020}}, 1.3)},
    {"fastest.one-run",
     "there are three starts of each",
     {{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}},
     repeated({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.012}})},
    {"fastest.few",
     "there are three starts of each",
     {noisy("ddp", 1), noisy("ddp", 1.001), noisy("allreduce", 2), noisy("allreduce", 2.001)},
     repeated({noisy("ddp", 1), noisy("allreduce", 2)})},
    {"reduce.options", "the exchange takes next to nothing", four_buckets(1 << 20),
     four_buckets(64, 1e-9)},
    {"reduce.none", "half of an iteration is exposed", four_buckets(64, 1e-9),
     four_buckets(1 << 20)},
    {"reduce.none", "the replay is 1.6 % off", four_buckets(64, 1e-9),
     exposing(four_buckets(64, 1e-9), 8.4e-5)},
    {"reduce.none", "the replay is far off", four_buckets(64, 1e-9),
     exposing(four_buckets(1 << 20), 0)},
    {"reduce.unknown", "the replay meets the measured iteration",
     exposing(four_buckets(64, 1e-9), 8.4e-5), four_buckets(64, 1e-9)},
    {"reduce.unknown", "nothing is said of a replay that is far off",
     exposing(four_buckets(64, 1e-9), 8.4e-5), exposing(four_buckets(1 << 20), 0)},
    {"networks.cost",
     "one was not run without an exchange",
     {kFour,
      {"none", 4, 64, 0.010},
      of_network({"ddp", 4, 64, 0.010, 0.005}, "other"),
      of_network({"none", 4, 64, 0.010}, "other")},
     {kFour, {"none", 4, 64, 0.010}, of_network({"ddp", 4, 64, 0.010, 0.005}, "other")}},
    {"networks.exposed",
     "the costs are known",
     {kFour, {"none", 4, 64, 0.010}, of_network({"ddp", 4, 64, 0.010, 0.005}, "other")},
     {kFour,
      {"none", 4, 64, 0.010},
      of_network({"ddp", 4, 64, 0.010, 0.005}, "other"),
      of_network({"none", 4, 64, 0.010}, "other")}},
    {"networks.exposed",
     "their batches differ",
     {kFour, of_network(kFour, "other")},
     {kFour, of_network({"ddp", 4, 128, 0.011, 0.001}, "other")}},
    {"link.latency", "bytes take longer", four_buckets(4096), four_buckets(1 << 20)},
    {"link.bandwidth", "latency takes longer", four_buckets(1 << 20), four_buckets(4096)},
    {"link.bandwidth", "the law's latency is at its bound 0", four_buckets(1 << 20),
     four_buckets(1 << 20, -1e-5)},
    {"link.missing",
     "the messages determine the law",
     {law_run({0.002, 1e-4, 1e-4, 1e-9, {1000000}}, 2, 16)},
     four_buckets(1 << 20)},
    {"wire.others",
     "nothing else crosses",
     {with_traffic(kFour, {9216, 0, 512, 0, 0, 0})},
     {with_traffic(kFour, {9216, 0, 0, 0, 0, 0})}},
    {"wire.others",
     "a byte more crosses",
     {with_traffic(kFour, {9216, 0, 512, 0, 0, 0})},
     {with_traffic(kFour, {9216, 0, 1, 0, 0, 0})}},
    {"narrowing.pays",
     "gradients travel in 32 bits",
     {with_wire(with_traffic(kFour, {9216, 0, 0, 0, 0, 0}), "bf16")},
     {with_wire(with_traffic(kFour, {9216, 0, 0, 0, 0, 0}), "fp32")}},
    {"measuring.free", "it costs half the time", {with_windows(8, 1)}, {with_windows(8, 1.5)}},
    {"measuring.changed", "it costs nothing", {with_windows(8, 1.5)}, {with_windows(8, 1)}},
    {"measuring.changed", "it costs nothing", with_and_without_stamps(1.25),
     with_and_without_stamps(1)},
    {"measuring.free", "it changes it", with_and_without_stamps(1), with_and_without_stamps(1.25)},
    {"measuring.few", "there are 8 rounds", {with_windows(3, 1)}, {with_windows(8, 1)}},
    {"measuring.missing", "it was measured", {kFour}, {with_windows(3, 1)}},
    {"utilization.arithmetic", "arithmetic was not probed", {with_probe(kFour)}, {kFour}},
    {"gpu.clocks", "no GPU was sampled", {with_gpu(kFour)}, {kFour}},
};

/// The sentences of a study's verdict, with their texts.
std::vector<VerdictClause> verdict_of(const Study& study) {
  const RunFolder folder;
  for (std::size_t i = 0; i < study.size(); ++i)
    write_study(folder / (std::to_string(i) + ".h5"), study[i]);
  return make_verdict(loaded(folder));
}

bool says(const std::vector<VerdictClause>& clauses, std::string_view sentence) {
  return std::any_of(clauses.begin(), clauses.end(),
                     [&](const VerdictClause& clause) { return clause.sentence == sentence; });
}

}  // namespace

/// The words of all sentences, one a line: where they are changed on purpose, this file is too.
TEST_CASE("verdict: every sentence appears where it holds, and not where it would be false") {
  std::string words;
  for (const SentencePair& pair : kPairs) {
    CAPTURE(pair.sentence);
    CAPTURE(pair.why_false);
    const auto holds = verdict_of(pair.holds), false_of = verdict_of(pair.false_of);
    CHECK_MESSAGE(says(holds, pair.sentence), verdict_text(holds));
    CHECK_MESSAGE(!says(false_of, pair.sentence), verdict_text(false_of));
    CHECK_FALSE(false_of.empty());
    for (const VerdictClause& clause : holds)
      if (clause.sentence == pair.sentence) words += clause.sentence + ": " + clause.text + "\n";
  }
  const auto found = source_folder() / "build/tests/verdict_sentences.txt";
  const auto golden = source_folder() / "tests/serial/analysis/verdict/verdict_sentences.txt";
  if (words != read_text_file(golden)) write_plainly(found, words);
  CHECK_MESSAGE(words == read_text_file(golden), "compare " << golden << " with " << found);
}

TEST_CASE("verdict: every sentence that can be said has data for which it would be false") {
  for (const std::string_view sentence : verdict_sentences())
    CHECK_MESSAGE(std::any_of(kPairs.begin(), kPairs.end(),
                              [&](const SentencePair& pair) { return pair.sentence == sentence; }),
                  "no pair of data for " << sentence);
  error_text(ExitCode::kInternal, [] { missing_clause("no.such", "unlisted"); });
}

TEST_CASE("verdict: power of a GPU is in watts without decimals") {
  const auto clauses = verdict_of({with_gpu(kFour)});
  CHECK_MESSAGE(contains(verdict_text(clauses), " GHz, 650 W (medians"), verdict_text(clauses));
}

TEST_CASE("verdict: a sentence that just fits the line stays on it") {
  VerdictClause clause;
  clause.text = "12345 789";
  CHECK(verdict_text({clause}, 12).starts_with("Verdict\n- 12345 789.\n"));
  CHECK(verdict_text({clause}, 11).starts_with("Verdict\n- 12345\n  789.\n"));
}

TEST_CASE("verdict: what is oversubscribed is named, and nothing is concluded from it") {
  const auto clauses = verdict_of({kOne, on_cores({"ddp", 2, 64, 0.011, 0.001}, "0-1"),
                                   on_cores({"ddp", 4, 64, 0.020, 0.001}, "0-1"),
                                   on_cores({"ddp", 4, 16, 0.010, 0.001}, "0-1")});
  REQUIRE(clauses.size() > 2);
  CHECK(clauses[0].sentence == "cost.missing");
  CHECK(clauses[1].text ==
        "oversubscribed: 4 ranks with 4 threads had 2 cores on host node0; the times of these 2 "
        "runs include waiting for a core, so nothing is concluded from them about scaling or "
        "bottlenecks");
  CHECK(clauses[1].files.size() == 2);
  for (const VerdictClause& clause : clauses)
    CHECK_MESSAGE((clause.topic() == "cores" || !contains(clause.text, "4 ranks")), clause.text);
  CHECK(says(clauses, "bound.compute"));
  CHECK(says(clauses, "scaling.weak"));
}

namespace {

/// The texts of a topic, one a line.
std::string texts(const Study& study, std::string_view topic) {
  std::string all;
  for (const VerdictClause& clause : verdict_of(study))
    if (clause.topic() == topic) all += clause.text + "\n";
  return all;
}

}  // namespace

TEST_CASE("verdict: batches that reach an efficiency that falls with the batch") {
  CHECK(texts(shared_memory_bandwidth(1.4e-3), "batch")
            .starts_with("of the batches from 4 to 64 per rank, the range measured, those of 4 to "
                         "11 reach 80 % efficiency at 2 ranks (weak scaling); measured: 85 % at 4, "
                         "78 % at 16, 76 % at 32, 74 % at 64\n"));
  const std::string measured = texts(shared_memory_bandwidth(1.4e-3, 1.09), "batch");
  CHECK_MESSAGE(contains(measured, "is given for those measured alone"), measured);
  CHECK_MESSAGE(contains(measured, "78 % at 4, 78 % at 16"), measured);
}

TEST_CASE("verdict: the first of three modes is the fastest only where it differs from both") {
  const std::string tie = texts(three_modes(0.103), "fastest");
  CHECK_MESSAGE(tie.starts_with("at 2 ranks with 32 images per rank allreduce and gather-scatter "
                                "took 100 ms and 104 ms an iteration: no significant difference"),
                tie);
  CHECK_FALSE(contains(tie, "ddp"));
  const std::string equal = texts(three_modes(0.100), "fastest");
  CHECK_MESSAGE(contains(equal, "allreduce, ddp and gather-scatter took"), equal);
  CHECK_MESSAGE(contains(equal, "to the first"), equal);
}

TEST_CASE("verdict: the fastest of a job is so within its rounds, whatever the median iterations") {
  // Rounds of ten iterations, of which ddp takes three times as long for one.
  Study study = {contender("ddp", {"ddp", 2, 32, 0.010, 0, 0, 120}, 0),
                 contender("allreduce", {"allreduce", 2, 32, 0.011, 0, 0, 120}, 0)};
  for (StudyRun& run : study)
    run.change = [mode = run.mode](IterationRow& row) {
      row.round = row.iteration / 10;
      if (mode == "ddp" && row.iteration % 10 == 9)
        for (RankIteration& rank : row.ranks)
          rank[Phase::kIteration] *= 3;
    };
  const std::string text = texts(study, "fastest");
  CHECK_MESSAGE(contains(text, "allreduce is the fastest of 2 modes"), text);
  CHECK_MESSAGE(contains(text, "ddp next with 1.091 times that"), text);
}

TEST_CASE("verdict: two single runs are not tested, whatever their ratio") {
  const std::string text = texts({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.020}}, "fastest");
  CHECK_MESSAGE(contains(text, "whether the modes differ was not tested"), text);
  CHECK_FALSE(contains(text, "significant"));
}

TEST_CASE("verdict: waiting inside communication is said of runs of schema 1, in the sentence") {
  const std::string reservation = "communication contains waiting for late ranks (schema 1)";
  const StudyRun run{"ddp", 2, 32, 0.006, 0.004};
  CHECK_MESSAGE(contains(texts({of_schema(run, 1)}, "bound"), reservation),
                texts({of_schema(run, 1)}, "bound"));
  CHECK_FALSE(contains(texts({of_schema(run, 2)}, "bound"), reservation));
  CHECK_FALSE(contains(texts({of_schema({"none", 2, 32, 0.006}, 1)}, "bound"), reservation));
  for (const VerdictClause& clause :
       verdict_of({of_schema({"ddp", 1, 32, 0.006}, 1), of_schema(run, 1)}))
    if (contains(clause.text, "exposed"))
      CHECK_MESSAGE(contains(clause.text, reservation), clause.text);
}

TEST_CASE("verdict: waiting inside communication is said where arrivals are not known") {
  StudyRun run{"ddp", 2, 32, 0.006, 0.004};
  run.change = [](IterationRow& row) {
    for (RankIteration& rank : row.ranks)
      rank[Phase::kWait] = kNotMeasured;
  };
  CHECK_MESSAGE(contains(texts({run}, "bound"), "since it is not known when the last rank came"),
                texts({run}, "bound"));
}

TEST_CASE("verdict: one sentence on what binds a setting, though cells differ in what is learned") {
  const StudyRun run{"ddp", 2, 32, 0.006, 0.004};
  const std::string text =
      texts({run, with_option({"ddp", 2, 32, 0.007, 0.003}, "lr", "0.4")}, "bound");
  CHECK_MESSAGE(std::count(text.begin(), text.end(), '\n') == 1, text);
}

TEST_CASE("verdict: who is late is named once, and of runs that shared a host as well") {
  const std::string named =
      "straggler wait is 19 % of an iteration of ddp at 3 ranks with 32 "
      "images per rank, for rank 1 on host node0: its ";
  CHECK(texts({late(Phase::kData, 0.004)}, "late") ==
        named + "wait for data takes 4 ms, that of the others 0 s\n");
  CHECK(texts({late(Phase::kData, 0.004)}, "rest").empty());
  for (const auto& one : {std::pair{Phase::kForward, "forward pass takes 7 ms"},
                          {Phase::kBackward, "backward pass takes 10 ms"},
                          {Phase::kOptimizer, "optimizer step takes 5 ms"}})
    CHECK_MESSAGE(contains(texts({late(one.first, 0.004)}, "late"), named + one.second),
                  one.second);
  const StudyRun shared = with_cpu_time(late(Phase::kForward, 0.004), 0.3);
  CHECK_FALSE(texts({shared}, "cores").empty());
  CHECK(contains(texts({shared}, "late"), "its forward pass takes 7 ms"));
  // Rank 2 begins its iterations later than the others.
  StudyRun begins = late(Phase::kForward, 0);
  begins.change = [](IterationRow& row) {
    for (std::size_t rank = 0; rank < row.ranks.size(); ++rank) {
      RankIteration& one = row.ranks[rank];
      one.begin_s = static_cast<double>(row.iteration) + (rank == 2 ? 0.003 : 0);
      if (rank != 2) one[Phase::kWait] = 0.003, one[Phase::kIteration] += 0.003;
    }
  };
  CHECK(contains(texts({begins}, "late"),
                 "for rank 2 on host node1: it begins its iterations 3 ms after the others"));
}

TEST_CASE("verdict: no option is said not to help that was not tried") {
  const auto in_mode = [](Study study, const char* mode) {
    for (StudyRun& run : study)
      run.mode = mode;
    return study;
  };
  const Study small = four_buckets(64, 1e-9), large = four_buckets(1 << 20);
  // c10d does not cast, a trace of DistributedDataParallel has none of the trainer's options.
  CHECK(contains(texts(in_mode(small, "c10d"), "reduce"),
                 "no other bucket cap or accumulation would shorten"));
  CHECK(contains(texts(in_mode(small, "pytorch-ddp"), "reduce"),
                 "no other bucket cap would shorten"));
  CHECK(texts(in_mode(large, "pytorch-ddp"), "reduce").empty());
  for (const char* mode : {"c10d", "pytorch-ddp"})
    CHECK(contains(texts(in_mode(large, mode), "faster"), "no other bucket cap helps on this one"));
}

TEST_CASE("verdict: what lies beside compute is said of a rank that measured it") {
  StudyRun run = resting(0.002, false);
  run.change = [before = run.change](IterationRow& row) {
    before(row);
    row.ranks[0][Phase::kCompute] = kNotMeasured;
  };
  const std::string text = texts({run}, "rest");
  CHECK_MESSAGE(contains(text, "most on rank 1 on host node0: 29 %"), text);
}

TEST_CASE("verdict: waiting for data is said of a rank that is late mostly for something else") {
  StudyRun run = late(Phase::kData, 0.006);
  run.change = [before = run.change](IterationRow& row) {
    before(row);
    for (std::size_t rank = 0; rank < row.ranks.size(); ++rank) {
      RankIteration& one = row.ranks[rank];
      for (const Phase phase : {Phase::kIteration, rank == 1 ? Phase::kBackward : Phase::kWait})
        one[phase] += 0.008;
      if (rank == 1) one[Phase::kCompute] += 0.008;
    }
  };
  CHECK(contains(texts({run}, "late"), "its backward pass takes 14 ms"));
  CHECK(contains(texts({run}, "rest"), "mainly waiting for data"));
}

TEST_CASE("verdict: the cost of another training is named as such, and only where there is none") {
  Study study = compared(0.002, 0.003);
  study[1] = contender("ddp:accumulate=4", {"ddp", 2, 32, 0.010, 0.001}, 0);
  CHECK(contains(texts(study, "cost"), "an iteration of allreduce at 2 ranks"));
  CHECK(contains(texts(without(study, 2), "cost"),
                 "an iteration of ddp:accumulate=4 (another training: 4 passes per update; times "
                 "per as many images) at 2 ranks"));
}

TEST_CASE("verdict: of contenders of one mode the one that overlaps is spoken of, else the first") {
  const auto with = [](const std::string& name, double exposed_s, const char* option,
                       const char* value) {
    StudyRun run = contender(name, {"ddp", 2, 32, 0.010, exposed_s}, 0);
    run.change_info = [=](RunInfo& info) {
      info.experiment = {
          {"id", "1"}, {"contender", name}, {"contenders", "none,ddp,ddp:overlap=none"}};
      info.config.push_back({option, value, "command line"});
    };
    return run;
  };
  const StudyRun none = contender("none", {"none", 2, 32, 0.010}, 0);
  // In the order of file names.
  CHECK(contains(texts({none, with("ddp:overlap=none", 0.010, "overlap", "none"),
                        with("ddp", 0.0025, "overlap", "backward")},
                       "reduce"),
                 " 10 % with --accumulate 2"));
  CHECK(contains(texts({none, with("ddp:bucket-cap=1MiB", 0.010, "bucket-cap", "1MiB"),
                        with("ddp", 0.0025, "bucket-cap", "25MiB")},
                       "reduce"),
                 " 10 % with --accumulate 2"));
}

TEST_CASE("verdict: the cost of several jobs is theirs, not that of the first") {
  Study study = compared(0.002, 0.003);
  for (const char* job : {"2", "3"})
    for (StudyRun run : compared(0.004, 0.003)) {
      run.change_info = [job, before = run.change_info](RunInfo& info) {
        before(info);
        for (auto& entry : info.experiment)
          if (entry.name == "id") entry.value = job;
      };
      study.push_back(run);
    }
  const std::string text = texts(study, "cost");
  CHECK_MESSAGE(contains(text, "an iteration of ddp at 2 ranks with 32 images per rank takes 1.33"),
                text);
  CHECK_MESSAGE(contains(text, "3 jobs"), text);
}

TEST_CASE("verdict: the cost of an experiment stands first, then the fastest and the control") {
  const auto clauses = verdict_of(compared(0.002, 0.003));
  REQUIRE(clauses.size() > 3);
  CHECK(clauses[0].sentence == "cost.measured");
  CHECK(contains(clauses[0].text, "longer than without it, by 2.00 ms: 2.00 ms exposed"));
  CHECK(clauses[0].files.size() == 4);
  CHECK(clauses[1].sentence == "fastest.mode");
  CHECK(clauses[2].sentence == "control.noise");
  // Two that wait for a core do so in every contender.
  Study shared = compared(0.002, 0.003);
  for (StudyRun& run : shared)
    run = with_cpu_time(run, 0.3);
  CHECK(verdict_of(shared)[0].sentence == "cost.measured");
  CHECK(says(verdict_of(shared), "cores.shared"));
  // A mode that is faster than none has no parts of a cost.
  const std::string faster = texts(compared(-0.002, 0.003), "cost");
  CHECK_MESSAGE(faster.ends_with("20 % (20 % to 20 %) shorter than without it, by 2.00 ms\n"),
                faster);
}

TEST_CASE("verdict: a terminal shows eight sentences and no more lines than it has") {
  Study study = one_bucket({32, 128});
  for (StudyRun& run : compared(0.002, 0.003))
    study.push_back(run);
  study.push_back(with_wire(with_traffic(kFour, {9216, 0, 512, 0, 0, 0}), "bf16"));
  study.push_back(with_windows(8, 1));
  const auto clauses = verdict_of(study);
  CHECK(clauses.size() > 8);
  CHECK(main_clauses(clauses).size() == 8);
  for (const std::size_t width : {80U, 60U}) {
    const std::string shown = verdict_text(clauses, width);
    std::size_t sentences = 0;
    for (std::size_t at = shown.find("\n- "); at != std::string::npos;
         at = shown.find("\n- ", at + 1))
      ++sentences;
    CHECK_MESSAGE(sentences <= 8, shown);
    CHECK_MESSAGE(std::count(shown.begin(), shown.end(), '\n') <= 24, shown);
    CHECK_MESSAGE(contains(shown, fmt::format("(--wide shows {} more sentences)",
                                              clauses.size() - sentences)),
                  shown);
    CHECK(shown.starts_with("Verdict\n- gradient synchronization makes"));
  }
  CHECK_FALSE(contains(verdict_text(clauses), "more sentence"));
}

TEST_CASE("verdict: no share below zero or above the whole") {
  const std::string fell =
      texts({{"ddp", 1, 64, 0.010, 0.002}, {"ddp", 4, 64, 0.018, 0.001}}, "scaling");
  CHECK_MESSAGE(contains(fell,
                         "compute takes 8 ms more, exposed communication takes 1 ms less, so "
                         "neither is a share of it"),
                fell);
  CHECK_FALSE(contains(fell, "(-"));
  const std::string rest =
      texts({{"ddp", 1, 64, 0.010}, {"ddp", 4, 64, 0.012, 0.001, 0.007}}, "scaling");
  CHECK_MESSAGE(contains(rest, "1 ms (10 %) exposed communication, 7 ms (70 %) neither"), rest);
  const std::string chance =
      texts(scattered({{"ddp", 1, 64, 0.0102}, {"ddp", 4, 64, 0.010}}), "scaling");
  CHECK_MESSAGE(contains(chance, "super-linear but not beyond its interval"), chance);
}

TEST_CASE("verdict: an efficiency has an interval where both were started three times") {
  const std::string once = texts({kOne, kFour}, "scaling");
  CHECK_MESSAGE(contains(once, "efficiency 80 % (no interval without repeats) at 4 ranks"), once);
  const std::string thrice = texts(repeated({kOne, kFour}), "scaling");
  CHECK_MESSAGE(contains(thrice, "efficiency 80 % (80 % to 80 %) at 4 ranks"), thrice);
  // Without one the loss is divided where it is more than starts usually differ by: 10 %.
  CHECK(contains(once, "takes 2.5 ms longer"));
  CHECK_FALSE(contains(texts({kOne, {"ddp", 4, 64, 0.0108}}, "scaling"), "longer"));
}

TEST_CASE("verdict: a shared host is named first, and nothing is concluded from its runs") {
  const auto clauses = verdict_of({with_cpu_time(kOne, 1), with_cpu_time({"ddp", 2, 64, 0.02}, 0.5),
                                   with_cpu_time({"ddp", 2, 64, 0.01, 0.01}, 0.4)});
  REQUIRE_FALSE(clauses.empty());
  CHECK(clauses[0].text ==
        "shared host: a rank on host node0 got at most 50 % to 80 % of a core while it did not "
        "wait; the times of these 2 runs include waiting for a core, so nothing is concluded from "
        "them about scaling or bottlenecks");
  CHECK(main_clauses(clauses)[0].text == clauses[0].text);
  for (const VerdictClause& clause : clauses)
    if (clause.topic() != "cores" && clause.topic() != "spread")
      CHECK_MESSAGE(!contains(clause.text, "2 ranks"), clause.text);
}
