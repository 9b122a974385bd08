// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/trace_run.h"

#include <cmath>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/output/trace.h"
#include "analysis/read/columns.h"
#include "analysis/read/rank_timeline.h"
#include "analysis/read/run_set.h"
#include "analysis/tables/tables.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

constexpr std::int64_t kBase_ns = 1790857026000000000;

/// Events as text, times in ms.
struct TraceWriter {
  std::string events;
  int rank = 0, ranks = 2;
  std::int64_t base_ns = kBase_ns;

  TraceWriter& add(const std::string& category, const std::string& name, double begin_ms,
                   double end_ms, const std::string& args = "", const std::string& thread = "1") {
    events += fmt::format(
        R"({}{{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
        events.empty() ? "" : ",\n", category, name, thread, 1e3 * begin_ms,
        1e3 * (end_ms - begin_ms), args);
    return *this;
  }
  TraceWriter& annotation(const std::string& name, double begin_ms, double end_ms) {
    return add("user_annotation", name, begin_ms, end_ms);
  }
  TraceWriter& op(const std::string& name, double begin_ms, double end_ms) {
    return add("cpu_op", name, begin_ms, end_ms);
  }
  TraceWriter& call(double at_ms, int elements) {
    return add(
        "cpu_op", "c10d::allreduce_", at_ms, at_ms + 1,
        fmt::format(R"("Input Dims": [[[{}]], [], []], "Input type": ["TensorList"])", elements));
  }
  TraceWriter& gloo(double begin_ms, double end_ms, int elements = 1000,
                    const std::string& name = "all_reduce") {
    return add("user_annotation", "gloo:" + name, begin_ms, end_ms,
               fmt::format(R"("Input Dims": [[{}]], "Input type": ["float"])", elements), "9");
  }
  TraceWriter& kernel(const std::string& name, double begin_ms, double end_ms, int correlation,
                      double launched_ms, const std::string& more = "") {
    add("cuda_runtime", "cudaLaunchKernel", launched_ms, launched_ms + 0.001,
        fmt::format(R"("correlation": {})", correlation));
    return add("kernel", name, begin_ms, end_ms,
               fmt::format(R"("correlation": {}, "stream": 7{})", correlation, more), "7");
  }
  std::string text() const {
    return fmt::format(
        R"({{"schemaVersion": 1, "distributedInfo": {{"backend": "gloo", "rank": {}, "world_size": {}}},
"baseTimeNanoseconds": {}, "traceEvents": [{}], "traceName": "x"}})",
        rank, ranks, base_ns, events);
  }
};

/// An iteration of 100 ms from `begin_ms`: forward 10 to 30, backward 30 to 60, a collective called
/// at 50 from 55 + late to 80, optimizer 90 to 95.
void add_iteration(TraceWriter& trace, int number, double begin_ms, double late_ms) {
  const auto at = [begin_ms](double time_ms) { return begin_ms + time_ms; };
  trace.annotation(fmt::format("ProfilerStep#{}", number), at(0), at(100))
      .annotation("DistributedDataParallel.forward", at(10), at(28))
      .op("aten::conv2d", at(10), at(30))
      .op("aten::convolution", at(12), at(20))
      .op("autograd::engine::evaluate_function: ConvolutionBackward0", at(30), at(60))
      .op("c10d::allreduce_", at(50), at(51))
      .gloo(at(55 + late_ms), at(80))
      .annotation("Optimizer.step#SGD.step", at(90), at(95))
      .op("aten::add_", at(90), at(95));
}

TraceWriter rank_of_two(int rank, double late_ms) {
  TraceWriter trace;
  trace.rank = rank;
  add_iteration(trace, 3, 1000, late_ms);
  add_iteration(trace, 4, 1100, late_ms);
  return trace;
}

struct Traces {
  TestFolder folder;
  std::vector<std::filesystem::path> paths;

  void add(const std::string& name, const std::string& text) {
    paths.push_back(folder / name);
    std::ofstream(paths.back(), std::ios::binary) << text;
  }
  void add(const TraceWriter& trace) { add(fmt::format("rank{}.json", trace.rank), trace.text()); }
  void add_two_ranks() {
    add(rank_of_two(1, 10));
    add(rank_of_two(0, 0));
  }
  std::unique_ptr<RunReader> run(std::int64_t batch = 0) const {
    return run_of_traces(paths, {batch, "net"});
  }
  bool says(const RunReader& run, const std::string& part) const {
    for (const NamedText& entry : run.info().provenance)
      if (entry.name.starts_with(kRemarkPrefix) && contains(entry.value, part)) return true;
    return false;
  }
};

std::string refused(const std::string& text) {
  Traces traces;
  traces.add("rank0.json", text);
  return error_text(ExitCode::kBadData, [&] { traces.run(); });
}

doctest::Approx about_ms(double ms) {
  return doctest::Approx(1e-3 * ms).epsilon(1e-6);
}

}  // namespace

TEST_CASE("profiler traces: iterations of two ranks over Gloo, split") {
  Traces traces;
  traces.add_two_ranks();
  const auto run = traces.run(16);
  CHECK(!traces.says(*run, ""));
  CHECK(run->iterations() == 2);
  CHECK(run->ranks() == 2);
  CHECK(run->option("sync") == "pytorch-ddp");
  CHECK(run->info().created == "2026-10-01T12:17:07Z");
  CHECK(run->info().schema == kRunSchema);
  const IterationRow row = run->rows(0, 1).front();
  CHECK(row.iteration == 3);
  CHECK(row.samples == 32);
  REQUIRE(row.buckets.size() == 1);
  CHECK(row.buckets[0].bytes == 4000);
  CHECK(row.buckets[0].kind == CollectiveKind::kAllReduce);

  const RankIteration& early = row.ranks[0];
  CHECK(early.begin_s == 0);
  CHECK(early[Phase::kIteration] == about_ms(100));
  CHECK(early[Phase::kData] == about_ms(10));
  CHECK(early[Phase::kForward] == about_ms(20));
  CHECK(early[Phase::kBackward] == about_ms(30));
  CHECK(early[Phase::kOptimizer] == about_ms(5));
  // Operators of 10 to 60 and 90 to 95, but for the call at 50 to 51.
  CHECK(early[Phase::kCompute] == about_ms(54));
  CHECK(early.buckets[0].ready_s == about_ms(50));
  CHECK(early.buckets[0].start_s == about_ms(55));
  CHECK(early.buckets[0].arrival_s == about_ms(65));
  CHECK(early.buckets[0].end_s == about_ms(80));
  CHECK(early[Phase::kCommBusy] == about_ms(15));
  CHECK(early[Phase::kHidden] == 0);
  CHECK(early[Phase::kExposed] == about_ms(15));
  CHECK(early[Phase::kWait] == about_ms(5));
  CHECK(early[Phase::kOther] == about_ms(26));
  const RankIteration& late = row.ranks[1];
  CHECK(late[Phase::kWait] == 0);
  CHECK(late.traffic_bytes[static_cast<std::size_t>(Traffic::kGradients)] == 4000);
}

TEST_CASE(
    "profiler traces: a saved run is that of the traces, whatever their order and compression") {
  Traces traces;
  traces.add_two_ranks();
  const auto run = traces.run(16);
  publish_run(*run, traces.folder / "run.h5");
  const auto saved = open_run(traces.folder / "run.h5");
  CHECK_NOTHROW(require_same_run(*run, *saved));

  Traces compressed;
  for (int rank : {0, 1})
    compressed.add(fmt::format("{}.json.gz", rank), gzipped(rank_of_two(rank, 10 * rank).text()));
  CHECK_NOTHROW(require_same_run(*run, *compressed.run(16)));
}

TEST_CASE(
    "profiler traces: compute of the data loader, of waits and what lasts into the next "
    "iteration") {
  TraceWriter trace = rank_of_two(0, 0);
  trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1010, 1014)
      .op("_c10d_functional::wait_tensor", 1020, 1025)
      .gloo(1098, 1105);
  Traces traces;
  traces.add(trace);
  traces.add(rank_of_two(1, 0).gloo(1099, 1105));
  const auto rows = traces.run()->rows(0, 2);
  CHECK(rows[0].ranks[0][Phase::kCompute] == about_ms(45));
  CHECK(rows[0].buckets.size() == 2);
  CHECK(rows[0].ranks[0][Phase::kCommBusy] == about_ms(26));
  CHECK(rows[1].buckets.size() == 1);
  CHECK(rows[1].ranks[0][Phase::kCommBusy] == about_ms(30));
}

TEST_CASE("profiler traces: iterations between optimizer steps where there is no ProfilerStep") {
  Traces traces;
  TraceWriter trace;
  trace.ranks = 1;
  for (int i = 0; i < 3; ++i)
    trace.op("aten::mm", 100 * i, 100 * i + 50)
        .add("cpu_op", "Optimizer.step#Adam.step", 100 * i + 60, 100 * i + 70);
  traces.add(trace);
  const auto run = traces.run();
  CHECK(run->iterations() == 2);
  CHECK(run->option("sync") == "none");
  CHECK(traces.says(*run, "no ProfilerStep#N"));
  const RankIteration rank = run->rows(1, 1).front().ranks[0];
  CHECK(rank[Phase::kIteration] == about_ms(100));
  CHECK(rank[Phase::kCompute] == about_ms(50));
  CHECK(rank[Phase::kCommBusy] == 0);
}

TEST_CASE("profiler traces: kernels of a GPU") {
  Traces traces;
  for (int rank : {0, 1}) {
    TraceWriter trace;
    trace.rank = rank;
    const std::string about =
        R"(, "Collective name": "allreduce", "In msg nelems": 500, "dtype": "BFloat16", "Group size": 2)";
    for (int i = 0; i < 2; ++i) {
      const double at = 100 * i;
      trace.annotation(fmt::format("ProfilerStep#{}", i), at, at + 100)
          .add("gpu_user_annotation", "DistributedDataParallel.forward", at + 50, at + 80)
          .add("gpu_user_annotation", "Optimizer.step#SGD.step", at + 130, at + 140)
          .kernel("gemm", at + 50, at + 80, 10 * i + 1, at + 1)
          .kernel("gemm", at + 85, at + 110, 10 * i + 2, at + 2)
          .kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", at + 111 + 4 * rank, at + 125,
                  10 * i + 3, at + 3, about)
          .kernel("sgd", at + 130, at + 140, 10 * i + 4, at + 4)
          .add("gpu_memcpy", "Memcpy HtoD", at + 145, at + 146,
               fmt::format(R"("correlation": {})", 10 * i + 4));
    }
    traces.add(trace);
  }
  const auto run = traces.run();
  const auto rows = run->rows(0, 2);
  const RankIteration& first = rows[0].ranks[0];
  CHECK(first[Phase::kIteration] == about_ms(100));  // to the first kernel of the next one
  CHECK(rows[1].ranks[0][Phase::kIteration] == about_ms(96));  // to the end of the last copy
  CHECK(first[Phase::kCompute] == about_ms(65));
  CHECK(first[Phase::kData] == 0);
  CHECK(first[Phase::kForward] == about_ms(30));
  CHECK(first[Phase::kBackward] == about_ms(30));
  CHECK(first[Phase::kOptimizer] == about_ms(10));
  CHECK(first[Phase::kCommBusy] == about_ms(10));
  CHECK(first[Phase::kWait] == about_ms(4));
  CHECK(rows[0].buckets.at(0).bytes == 1000);
  CHECK(first.buckets[0].ready_s == about_ms(60));
  CHECK(first.buckets[0].start_s == about_ms(61));
  CHECK(first.buckets[0].arrival_s == about_ms(65));
}

TEST_CASE("profiler traces: a copy for the next batch begins no iteration of a GPU") {
  TraceWriter trace;
  trace.ranks = 1;
  for (int i = 0; i < 3; ++i)  // the GPU lags behind
    trace.annotation(fmt::format("ProfilerStep#{}", i), 20 * i, 20 * i + 20)
        .add("cuda_runtime", "cudaMemcpyAsync", 20 * i + 1, 20 * i + 1.001,
             fmt::format(R"("correlation": {})", 10 * i + 1))
        .add("gpu_memcpy", "Memcpy HtoD", 20 * i + 1.01, 20 * i + 1.5,
             fmt::format(R"("correlation": {}, "stream": 20)", 10 * i + 1))
        .kernel("gemm", 5 + 100 * i, 105 + 100 * i, 10 * i + 2, 20 * i + 5);
  Traces traces;
  traces.add(trace);
  const auto run = traces.run();
  for (const IterationRow& row : run->rows(0, 3)) {
    CHECK(row.ranks[0][Phase::kIteration] == about_ms(100));
    CHECK(row.ranks[0][Phase::kCompute] == about_ms(100));
  }
}

TEST_CASE("profiler traces: a functional collective is one call") {
  TraceWriter trace;
  trace.ranks = 1;
  for (int i = 0; i < 2; ++i)
    trace.annotation(fmt::format("ProfilerStep#{}", i), 100 * i, 100 * i + 100)
        .add("cpu_op", "_c10d_functional::all_reduce", 100 * i + 50, 100 * i + 52,
             R"("Input Dims": [[1000], [], []], "Input type": ["float", "", ""])")
        .call(100 * i + 50.1, 1000)
        .gloo(100 * i + 55, 100 * i + 80);
  Traces traces;
  traces.add(trace);
  for (const IterationRow& row : traces.run()->rows(0, 2)) {
    REQUIRE(row.buckets.size() == 1);
    CHECK(row.ranks[0].buckets[0].ready_s == about_ms(50.1));
  }
}

namespace {

/// The one collective of a trace in which a kernel of an older NCCL says nothing of itself.
void check_called(const std::string& call, const std::string& kernel, CollectiveKind kind,
                  std::int64_t bytes) {
  TraceWriter trace;
  trace.ranks = 1;
  trace.annotation("ProfilerStep#1", 0, 100)
      .add("cpu_op", "record_param_comms", 1, 2, R"("External id": 77, )" + call)
      .kernel("gemm", 10, 20, 1, 1)
      .kernel(kernel, 20, 30, 2, 2, R"(, "External id": 77)");
  Traces traces;
  traces.add(trace);
  const auto row = traces.run()->rows(0, 1).front();
  REQUIRE(row.buckets.size() == 1);
  CHECK(row.buckets[0].kind == kind);
  CHECK(row.buckets[0].bytes == bytes);
}

}  // namespace

TEST_CASE("profiler traces: NCCL's kernels of older versions are described by their calls") {
  check_called(R"("Collective name": "broadcast", "dtype": "Float", "In msg nelems": 8)",
               "ncclKernel_Broadcast_RING_LL_Sum_int8_t", CollectiveKind::kBroadcast, 32);
}

TEST_CASE("profiler traces: a call without a name leaves its kernel the kind that it names") {
  check_called(R"("Input Dims": [[1000], [], []], "Input type": ["float", "", ""])",
               "ncclKernel_AllGather_RING_LL_Sum_int8_t", CollectiveKind::kAllGather, 4000);
}

TEST_CASE("profiler traces: a rank without a trace is missing, and waits are not known") {
  Traces traces;
  traces.add(rank_of_two(1, 0));
  const auto run = traces.run();
  CHECK(run->info().schema == 1);
  CHECK(traces.says(*run, "no trace of 1 of 2 ranks"));
  const IterationRow row = run->rows(0, 1).front();
  REQUIRE(row.ranks.size() == 2);
  CHECK(std::isnan(row.ranks[0][Phase::kIteration]));
  CHECK(std::isnan(row.ranks[1][Phase::kWait]));
  CHECK(row.ranks[1][Phase::kCommBusy] == about_ms(25));
  CHECK_NOTHROW(publish_run(*run, traces.folder / "run.h5"));
}

TEST_CASE("profiler traces: ranks that called different collectives") {
  Traces traces;
  traces.add(rank_of_two(0, 0));
  traces.add(rank_of_two(1, 0).gloo(1082, 1084));
  const auto run = traces.run();
  CHECK(run->info().schema == 1);
  CHECK(traces.says(*run, "in 1 iteration the ranks called different collectives"));
  CHECK(run->rows(0, 1).front().buckets.empty());
  CHECK(run->rows(0, 1).front().ranks[1][Phase::kCommBusy] == about_ms(27));
  CHECK(run->rows(1, 1).front().buckets.size() == 1);
}

TEST_CASE("profiler traces: threads of Gloo may begin a later call first") {
  for (const bool with_sizes : {true, false}) {
    Traces traces;
    for (const int rank : {0, 1}) {
      TraceWriter trace;
      trace.rank = rank;
      trace.annotation("ProfilerStep#3", 0, 100).call(20, 5000).call(30, 1000);
      trace.gloo(rank == 0 ? 22 : 42, 60, 5000).gloo(40, 50, 1000);
      if (!with_sizes && rank == 1)
        trace.events.replace(trace.events.rfind("Input Dims"), 5, "Other");
      traces.add(trace);
    }
    const auto run = traces.run();
    CHECK(run->info().schema == kRunSchema);
    CHECK(!traces.says(*run, "size"));
    const IterationRow row = run->rows(0, 1).front();
    REQUIRE(row.buckets.size() == 2);
    CHECK(row.buckets[0].bytes == 20000);
    CHECK(row.buckets[1].bytes == 4000);
    CHECK(row.ranks[0][Phase::kWait] == about_ms(18));  // 22 to 40: from there one of them moves
    CHECK(row.ranks[1][Phase::kWait] == about_ms(0));
  }
}

TEST_CASE("profiler traces: a size that one rank lacks is that of the others") {
  for (const int without : {0, 1}) {
    Traces traces;
    traces.add(rank_of_two(0, 0));
    traces.add(rank_of_two(1, 0));
    TraceWriter trace = rank_of_two(without, 0);
    trace.events.replace(trace.events.find("Input Dims"), 5, "Other");
    traces.add(trace);
    traces.paths.erase(traces.paths.begin() + without);
    const auto run = traces.run();
    CHECK(run->info().schema == kRunSchema);
    CHECK(!traces.says(*run, ""));
    CHECK(run->rows(0, 1).front().buckets[0].bytes == run->rows(1, 1).front().buckets[0].bytes);
  }
}

TEST_CASE("profiler traces: a saved run has their remarks") {
  Traces traces;
  traces.add(rank_of_two(1, 0));
  publish_run(*traces.run(), traces.folder / "run.h5");
  const RunSet saved = load_places({(traces.folder / "run.h5").string()});
  REQUIRE(!saved.remarks.empty());
  CHECK(contains(saved.remarks.front(), "no trace of 1 of 2 ranks"));
  // Of one run only: repeats may differ in them.
  Traces whole;
  whole.add_two_ranks();
  publish_run(*whole.run(), traces.folder / "whole.h5");
  const RunSet both = load_places({traces.folder.path().string()});
  REQUIRE(both.runs.size() == 2);
  for (const RunDifference& difference : differences(both.runs[0], both.runs[1]))
    CHECK_FALSE(difference.what.starts_with(kRemarkPrefix));
}

TEST_CASE("profiler traces: collectives that no bucket can hold count as communication") {
  Traces traces;
  for (int rank : {0, 1})
    traces.add(rank_of_two(rank, 0).gloo(1082, 1084, 10, "send"));
  const auto run = traces.run();
  CHECK(traces.says(*run, "2 collectives of some ranks only, of a group"));
  CHECK(run->rows(0, 1).front().buckets.size() == 1);
  CHECK(run->rows(0, 1).front().ranks[0][Phase::kCommBusy] == about_ms(27));
}

TEST_CASE("profiler traces: reduce-scatter, all-to-all and scatter have the sizes of run files") {
  for (const auto& [name, kind] : {std::pair{"reduce_scatter", CollectiveKind::kReduceScatter},
                                   std::pair{"alltoall", CollectiveKind::kAllToAll},
                                   std::pair{"scatter", CollectiveKind::kScatter}}) {
    Traces traces;
    const bool root_only = kind == CollectiveKind::kScatter;
    for (int rank : {0, 1})
      traces.add(rank_of_two(rank, 0).gloo(1082, 1084, root_only && rank > 0 ? 0 : 10, name));
    const auto run = traces.run();
    CHECK(!traces.says(*run, ""));
    const IterationRow row = run->rows(0, 1).front();
    REQUIRE(row.buckets.size() == 2);
    CHECK(row.buckets[1].kind == kind);
    CHECK(row.buckets[1].bytes == 20);  // 10 floats in two parts
    // One part leaves each of the two ranks, beside the all-reduce of 1,000 floats.
    const auto gradients = static_cast<std::size_t>(Traffic::kGradients);
    CHECK(row.ranks[0].traffic_bytes[gradients] == 4000 + 20);
  }
}

TEST_CASE("profiler traces: clocks") {
  Traces traces;
  traces.add(rank_of_two(0, 0));
  TraceWriter other = rank_of_two(1, 0);
  SUBCASE("of two hosts are aligned by the ends of collectives") {
    other.base_ns += 500000000;
    traces.add(other);
    const auto run = traces.run();
    CHECK(traces.says(*run, "the clock of rank 1 differs from that of rank 0 by 500.000 ms"));
    CHECK(run->info().topology[1].clock_offset_s == doctest::Approx(-0.5));
    CHECK(run->info().topology[1].clock_uncertainty_s == about_ms(25));
    CHECK(run->rows(0, 1).front().ranks[1].begin_s == doctest::Approx(0).epsilon(1e-6));
    CHECK(run->rows(0, 1).front().ranks[0][Phase::kWait] == doctest::Approx(0).epsilon(1e-6));
  }
  SUBCASE("that contradict each other leave the waits unknown") {
    TraceWriter drifting;
    drifting.rank = 1;
    add_iteration(drifting, 3, 800, 0);
    add_iteration(drifting, 4, 1050, 0);
    traces.add(drifting);
    const auto run = traces.run();
    CHECK(traces.says(*run, "clocks of rank 0 and rank 1 contradict"));
    CHECK(run->info().schema == 1);
    CHECK(std::isnan(run->rows(0, 1).front().ranks[0][Phase::kWait]));
    CHECK(std::isnan(run->info().topology[1].clock_offset_s));
  }
}

TEST_CASE("profiler traces: gaps are stated") {
  Traces traces;
  SUBCASE("no collective in a job of two ranks") {
    for (int rank : {0, 1}) {
      TraceWriter trace;
      trace.rank = rank;
      traces.add(trace.annotation("ProfilerStep#1", 0, 10).op("aten::mm", 1, 5));
    }
    const auto run = traces.run();
    CHECK(traces.says(*run, "no collective in the traces of a job of 2 ranks"));
    const RankIteration rank = run->rows(0, 1).front().ranks[0];
    CHECK(rank[Phase::kCompute] == about_ms(4));
    CHECK(std::isnan(rank[Phase::kCommBusy]));
    CHECK(std::isnan(rank[Phase::kOther]));
  }
  SUBCASE("iterations that one rank lacks") {
    traces.add(rank_of_two(0, 0));
    TraceWriter trace;
    trace.rank = 1;
    add_iteration(trace, 4, 1100, 0);
    traces.add(trace);
    const auto run = traces.run();
    CHECK(traces.says(*run, "1 iteration that not all ranks recorded"));
    CHECK(run->index().iteration == std::vector<std::int64_t>{4});
  }
  SUBCASE("sizes that were not recorded") {
    for (int rank : {0, 1}) {
      TraceWriter trace;
      trace.rank = rank;
      traces.add(trace.annotation("ProfilerStep#1", 0, 10)
                     .add("user_annotation", "gloo:all_reduce", 1, 2));
    }
    CHECK(traces.says(*traces.run(), "2 collectives without a size"));
  }
  SUBCASE("events without a time") {
    for (int rank : {0, 1}) {
      TraceWriter trace = rank_of_two(rank, 0);
      trace.events += R"(, {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e300, "dur": 1},
                          {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": -5},
                          {"ph": "X", "cat": "cpu_op", "name": "a", "ts": "soon", "dur": 1}, 7, [[]])";
      traces.add(trace);
    }
    const auto run = traces.run();
    CHECK(traces.says(*run, "3 events without a valid time"));
    CHECK(run->rows(0, 1).front().ranks[0][Phase::kCompute] == about_ms(54));
  }
}

TEST_CASE("profiler traces: what makes no run is refused") {
  const auto set_of = [](const TraceWriter& a, const TraceWriter& b) {
    Traces traces;
    traces.add("a.json", a.text());
    traces.add("b.json", b.text());
    return error_text(ExitCode::kBadData, [&] { traces.run(); });
  };
  TraceWriter four = rank_of_two(1, 0);
  four.ranks = 4;
  TraceWriter later;
  later.rank = 1;
  add_iteration(later, 9, 2000, 0);
  CHECK(contains(set_of(rank_of_two(1, 0), rank_of_two(1, 0)), "are both of rank 1"));
  CHECK(contains(set_of(rank_of_two(0, 0), four), "of one of 4 ranks"));
  CHECK(contains(set_of(rank_of_two(0, 0), later), "no iteration in common"));

  TraceWriter one = rank_of_two(2, 0);
  CHECK(contains(refused(one.text()), "is of rank 2 of 2 ranks"));
  one.rank = 0;
  one.ranks = 100000000;
  CHECK(contains(refused(one.text()), "at most 65536 can be read"));
  CHECK(contains(refused(TraceWriter{}.op("aten::mm", 0, 1).text()), "holds no iterations"));

  Traces missing;
  missing.paths = {missing.folder / "no.json"};
  error_text(ExitCode::kNoInput, [&] { missing.run(); });
}

TEST_CASE("profiler traces: a rank that the trace does not hold is that of the file's name") {
  Traces traces;
  for (int rank : {1, 0}) {
    std::string text = rank_of_two(rank, 0).text();
    text.replace(text.find("distributedInfo"), 15, "otherInfo......");
    traces.add(fmt::format("job-rank-{}.json", rank), text);
  }
  CHECK(traces.run()->rows(0, 1).front().ranks[1][Phase::kCompute] == about_ms(54));
  traces.add("third.json", R"({"traceEvents": []})");
  CHECK(contains(error_text(ExitCode::kBadData, [&] { traces.run(); }),
                 "third.json' does not hold its rank"));
}

TEST_CASE("profiler traces: the host is that of the name that tensorboard_trace_handler gives") {
  Traces traces;
  for (int rank : {0, 1})
    traces.add(fmt::format("node{}_417.1712195495.pt.trace.json", rank),
               rank_of_two(rank, 0).text());
  const auto run = traces.run();
  CHECK(run->info().topology[1].host == "node1");
  CHECK(run->info().topology[1].local_rank == 0);
  CHECK(find_traces({traces.folder.path().string()}) == traces.paths);
}

TEST_CASE("profiler traces: damaged and hostile JSON") {
  const std::string whole = rank_of_two(0, 0).text();
  CHECK(contains(refused(whole.substr(0, whole.size() / 2)), "within a value"));
  CHECK(contains(refused(""), "within a value"));
  CHECK(contains(refused("[]"), "holds no list traceEvents"));
  CHECK(contains(refused(R"({"traceEvents": 5})"), "holds no list traceEvents"));
  CHECK(contains(refused("\x89HDF"), "is no JSON: byte 1"));
  CHECK(contains(refused(whole + "x"), "is no JSON"));
  // The parser refuses this text as a whole, and has no place in it.
  CHECK(
      contains(refused("{\"traceEvents\": [{\"ph\": \"X\"}\xa4 {\"ph\": \"X\"}]}"), "is no JSON"));
  CHECK(contains(refused(R"({"traceEvents": [{"ts": 1e999}]})"), "is no JSON"));
  CHECK(contains(refused(R"({"a": 1e999, "traceEvents": []})"), "number that is too large"));
  CHECK(contains(refused(R"({"traceEvents": )" + std::string(200, '[')), "deeper than 100 levels"));
  const std::string packed = gzipped(whole);
  CHECK(contains(refused(packed.substr(0, packed.size() - 20)), "cannot be decompressed"));
  std::string broken = packed;
  broken[packed.size() / 2] ^= 0x55;
  CHECK(contains(refused(broken), "cannot be decompressed"));
  // One name of 70 MB.
  std::string letters = "a";
  letters.resize(70'000'000, 'a');
  const std::string long_name = R"({"traceEvents": [{"name": ")" + letters + "\"}]}";
  CHECK(contains(refused(gzipped(long_name)), "holds a value of more than 67108864 bytes"));
  // 320 MiB of events in 320 KiB: members of gzip behind each other are one file.
  std::string events;
  for (int i = 0; i < 16; ++i)
    events += R"({"name": ")" + std::string(1U << 20, 'a') + "\"},";
  const std::string member = gzipped(events);
  std::string bomb = gzipped(R"({"traceEvents": [)");
  for (int i = 0; i < 20; ++i)
    bomb += member;
  CHECK(contains(refused(bomb), "grows to more than 200 times its size"));
}

TEST_CASE("profiler traces: text that browsers read and JSON does not allow") {
  for (const std::string name : {"two\nlines", "caf\xe9", "caf\xc3\xa9", "a \\\"quote\\\"\t\x01"}) {
    Traces traces;
    for (int rank : {0, 1})
      traces.add(rank_of_two(rank, 0).op(name, 1062, 1063));
    CHECK(traces.run()->rows(0, 1).front().ranks[0][Phase::kCompute] == about_ms(55));
  }
}

TEST_CASE("profiler traces: numbers as texts") {
  std::string text = rank_of_two(0, 0).text();
  for (const std::string key : {"\"ts\": ", "\"dur\": ", "\"rank\": ", "\"world_size\": "})
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      text.insert(at + key.size(), "\"");
      text.insert(text.find_first_of(",}", at), "\"");
    }
  Traces traces;
  traces.add("a.json", text);
  const auto run = traces.run();
  CHECK(run->ranks() == 2);
  CHECK(run->rows(0, 1).front().ranks[0][Phase::kCompute] == about_ms(54));
}

TEST_CASE("profiler traces: times of 19 digits, as of PyTorch 2.3") {
  TraceWriter trace;
  trace.ranks = 1;
  for (const double at : {1712195495519.0, 1712195495619.0})
    trace.annotation(fmt::format("ProfilerStep#{}", at > 1712195495600.0 ? 1 : 0), at, at + 100)
        .op("aten::mm", at + 10.5, at + 30.25);
  Traces traces;
  traces.add(trace);
  const RankIteration rank = traces.run()->rows(1, 1).front().ranks[0];
  CHECK(rank[Phase::kIteration] == about_ms(100));
  CHECK(rank[Phase::kCompute] == about_ms(19.75));
}

TEST_CASE("profiler traces: what cannot be read has a fix that helps") {
  const auto fix = [](const std::string& text) {
    Traces traces;
    traces.add("rank0.json", text);
    try {
      traces.run();
    } catch (const Error& error) {
      return fmt::format("{}; {}", error.what(), error.fix());
    }
    return std::string();
  };
  const std::string whole = rank_of_two(0, 0).text();
  CHECK(contains(fix("PK\x03\x04..."), "is a zip archive"));
  CHECK(contains(fix("PK\x03\x04..."), "unzip /"));
  CHECK(contains(fix("\x28\xb5\x2f\xfd..."), "unzstd"));
  CHECK(contains(fix(whole.substr(0, whole.size() / 2)), "a process that is killed"));
  std::string infinite = whole;
  infinite.replace(infinite.find("\"args\": {"), 9, "\"args\": {\"GB/s\": inf");
  CHECK(contains(fix(infinite), "correct the text at"));
  CHECK(contains(fix("\x89HDF"), "name files that"));
  CHECK(contains(fix(R"([{"ph": "X", "name": "a"}])"), "PyTorch 1.8.1"));
}

namespace {

/// Two steps of 100 ms on one rank; of each the kernels a, b and c of one stream, from 10 to 30,
/// 30 to 50 and 50 to 70, launched at 1, 2 and 3.
struct Kernels {
  TraceWriter trace;
  int launches = 0;
  std::string launch = "cudaLaunchKernel";

  Kernels() {
    trace.ranks = 1;
    for (const double at : {1000, 1100}) {
      trace.annotation(fmt::format("ProfilerStep#{}", static_cast<int>(at / 100)), at, at + 100);
      for (const double begin : {10, 30, 50})
        kernel(at + begin, at + begin + 20, at + begin / 20 + 0.5);
    }
  }
  Kernels& kernel(double begin_ms, double end_ms, double launched_ms) {
    ++launches;
    trace.add("cuda_runtime", launch, launched_ms, launched_ms + 0.001,
              fmt::format(R"("correlation": {})", launches));
    trace.add("kernel", "k", begin_ms, end_ms,
              fmt::format(R"("correlation": {}, "device": 0, "stream": 7)", launches));
    return *this;
  }
};

}  // namespace

TEST_CASE("profiler traces: an event whose time cannot be right is left out and counted") {
  Kernels kernels;
  double compute_ms = 60;
  SUBCASE("none is") {
    CHECK_FALSE(contains(kernels.trace.text(), "nothing"));
  }
  SUBCASE("a lost time") {
    kernels.kernel(0, 5, 1003.6);
  }
  SUBCASE("before its launch") {
    kernels.kernel(1004, 1009, 1040);
  }
  SUBCASE("a little before its launch: clocks differ") {
    kernels.kernel(1075, 1080, 1075.04);
    compute_ms = 65;
  }
  SUBCASE("before what was launched earlier in its stream") {
    kernels.kernel(1020, 1025, 1003.6);
  }
  SUBCASE("into what follows in its stream") {
    kernels.kernel(1075, 1125, 1003.6);
  }
  SUBCASE("longer than the trace") {
    kernels.kernel(1175, 1775, 1103.6);
  }
  SUBCASE("negative") {
    kernels.kernel(-50, -40, 1003.6);
  }
  SUBCASE("an operator that is longer than the trace") {
    kernels.trace.op("aten::mm", 500, 9000);
  }
  SUBCASE("work of a stream that is not in order: no conclusion") {
    kernels.launch = "hipLaunchKernel";
    kernels.kernel(1020, 1025, 1003.6);
  }
  Traces traces;
  traces.add(kernels.trace);
  const auto run = traces.run();
  const bool all_fine = compute_ms > 60 || kernels.launches == 6 || kernels.launch[0] == 'h';
  const bool only_operator = contains(kernels.trace.text(), "aten::mm");
  CHECK(traces.says(*run, "with times that cannot be right") == (!all_fine || only_operator));
  CHECK(run->iterations() == 2);
  CHECK(run->rows(0, 1).front().ranks[0][Phase::kIteration] == about_ms(100));
  CHECK(run->rows(0, 1).front().ranks[0][Phase::kCompute] == about_ms(compute_ms));
}

TEST_CASE("profiler traces: steps whose times cannot be right") {
  const auto numbers_of = [](const std::vector<double>& begins_ms) {
    TraceWriter trace;
    trace.ranks = 1;
    for (std::size_t i = 0; i < begins_ms.size(); ++i)
      trace.annotation(fmt::format("ProfilerStep#{}", i), begins_ms[i], begins_ms[i] + 100)
          .op("aten::mm", begins_ms[i] + 1, begins_ms[i] + 50);
    Traces traces;
    traces.add(trace);
    const auto run = traces.run();
    CHECK(traces.says(*run, "cannot be right") == (run->iterations() < begins_ms.size()));
    return run->index().iteration;
  };
  using Numbers = std::vector<std::int64_t>;
  CHECK(numbers_of({1000, 1100, 1200}) == Numbers{0, 1, 2});
  CHECK(numbers_of({0, 1100, 1200}) == Numbers{1, 2});
  CHECK(numbers_of({1000, 0, 1200}) == Numbers{0, 2});
  CHECK(numbers_of({1000, 1100, 9e9}) == Numbers{0, 1});
}

TEST_CASE("profiler traces: a trace of which most times cannot be right is refused") {
  Kernels kernels;
  for (int i = 0; i < 20; ++i)
    kernels.kernel(0, 1, 1004 + i);
  CHECK(contains(refused(kernels.trace.text()), "times that cannot be right"));
}

TEST_CASE("profiler traces: an annotation counts for the step that its work lies in") {
  for (const double early_ms : {0.0, 0.001}) {
    Kernels kernels;
    for (const double at : {1000, 1100})
      kernels.trace
          .add("gpu_user_annotation", "DistributedDataParallel.forward", at + 10 - early_ms,
               at + 30)
          .add("gpu_user_annotation", "Optimizer.step#SGD.step", at + 50 - early_ms, at + 70);
    Traces traces;
    traces.add(kernels.trace);
    const RankIteration rank = traces.run()->rows(0, 1).front().ranks[0];
    CHECK(rank[Phase::kData] == 0);
    CHECK(rank[Phase::kForward] == about_ms(20));
    CHECK(rank[Phase::kBackward] == doctest::Approx(0.020).epsilon(1e-4));
    CHECK(rank[Phase::kOptimizer] == doctest::Approx(0.020).epsilon(1e-4));
  }
}

TEST_CASE("profiler traces: phases have no part in common with exposed communication") {
  Traces traces;
  for (const int rank : {0, 1})  // a collective within the backward pass, without compute
    traces.add(
        rank_of_two(rank, 0).op("autograd::engine::evaluate_function: AddmmBackward0", 1080, 1085));
  const RankIteration rank = traces.run()->rows(0, 1).front().ranks[0];
  CHECK(rank[Phase::kExposed] == about_ms(20));
  CHECK(rank[Phase::kBackward] == about_ms(55 - 20));
}

TEST_CASE("profiler traces: one step counts") {
  Traces traces;
  for (const int rank : {0, 1}) {
    TraceWriter trace;
    trace.rank = rank;
    add_iteration(trace, 3, 1000, 0);
    traces.add(trace);
  }
  auto run = traces.run();
  CHECK(traces.says(*run, "one iteration: it counts"));
  CHECK(steady_rows(*run).kept() == 1);
  Traces two;
  two.add_two_ranks();
  CHECK(steady_rows(*two.run()).kept() == 1);  // of two: the first is left out
}

TEST_CASE("profiler traces: ranks that number their steps differently") {
  Traces traces;
  traces.add(rank_of_two(0, 0));
  TraceWriter other;
  other.rank = 1;
  SUBCASE("at the same times") {
    add_iteration(other, 4, 1000, 0);
    add_iteration(other, 5, 1100, 0);
    traces.add(other);
    const auto run = traces.run();
    CHECK(traces.says(*run, "rank 1 numbers its steps 1 higher than rank 0"));
    CHECK_FALSE(traces.says(*run, "clock"));
    CHECK(run->index().iteration == std::vector<std::int64_t>{3, 4});
    CHECK(run->rows(0, 1).front().ranks[1].begin_s == 0);
  }
  SUBCASE("without a number in common") {
    add_iteration(other, 13, 1000, 0);
    add_iteration(other, 14, 1100, 0);
    traces.add(other);
    CHECK(traces.run()->index().iteration == std::vector<std::int64_t>{3, 4});
  }
  SUBCASE("a clock that differs by an iteration is a clock") {
    add_iteration(other, 3, 1100, 0);
    add_iteration(other, 4, 1200, 0);
    traces.add(other);
    const auto run = traces.run();
    CHECK(traces.says(*run, "the clock of rank 1 differs from that of rank 0 by 100.000 ms"));
    CHECK(run->iterations() == 2);
  }
}

TEST_CASE("profiler traces: a job with groups of some ranks") {
  Traces traces;
  for (const int rank : {0, 1}) {
    std::string text = rank_of_two(rank, 0).text();
    text.replace(text.find(R"("backend")"), 0,
                 R"("pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]},
                                  {"pg_name": "1", "pg_size": 1, "ranks": [0]}], )");
    traces.add(fmt::format("{}.json", rank), text);
  }
  const auto run = traces.run();
  CHECK(traces.says(*run, "of a group that the trace does not state"));
  const IterationRow row = run->rows(0, 1).front();
  CHECK(row.buckets.empty());
  CHECK(row.ranks[0][Phase::kCommBusy] == about_ms(25));
  CHECK(std::isnan(run->traffic(Traffic::kGradients).at(0, 0)));
}

TEST_CASE("profiler traces: bytes that they do not hold are unknown, not 0") {
  Traces traces;
  for (const int rank : {0, 1}) {
    TraceWriter trace;
    trace.rank = rank;
    traces.add(
        trace.annotation("ProfilerStep#1", 0, 10).add("user_annotation", "gloo:all_reduce", 1, 2));
  }
  const auto run = traces.run();
  CHECK(run->rows(0, 1).front().buckets.at(0).bytes == -1);
  publish_run(*run, traces.folder / "run.h5");
  for (const auto& reader : {traces.run(), open_run(traces.folder / "run.h5")}) {
    CHECK(std::isnan(reader->traffic(Traffic::kGradients).at(0, 0)));
    CHECK(reader->traffic(Traffic::kBuffers).at(0, 0) == 0);
  }
  Traces one;
  one.add(rank_of_two(1, 0));
  CHECK(std::isnan(one.run()->traffic(Traffic::kGradients).at(0, 0)));
  CHECK(one.run()->traffic(Traffic::kGradients).at(0, 1) == 4000);
}

TEST_CASE("profiler traces: ranks that they do not count") {
  const auto without_info = [](const TraceWriter& trace) {
    std::string text = trace.text();
    text.replace(text.find("distributedInfo"), 15, "otherInfo......");
    return text;
  };
  Traces traces;
  SUBCASE("are those of the largest group") {
    Kernels kernels;
    kernels.trace.kernel("ncclDevKernel_AllReduce", 1075, 1080, 99, 1004,
                         R"(, "Collective name": "allreduce", "Group size": 4)");
    traces.add("a.json", without_info(kernels.trace));
    const auto run = traces.run();
    CHECK(run->ranks() == 4);
    CHECK(run->option("sync") == "pytorch");
    CHECK(traces.says(*run, "no trace of 3 of 4 ranks"));
  }
  SUBCASE("are unknown where collectives state no group") {
    traces.add("a.json", without_info(rank_of_two(0, 0)));
    const auto run = traces.run();
    CHECK(run->option("sync") == "pytorch-ddp");
    CHECK(traces.says(*run, "the number of ranks is not in the trace"));
    CHECK(std::isnan(run->rows(0, 1).front().ranks[0][Phase::kWait]));
  }
  SUBCASE("are one without collectives") {
    traces.add("a.json", without_info(Kernels().trace));
    CHECK(traces.run()->option("sync") == "none");
    CHECK(!traces.says(*traces.run(), ""));
  }
}

TEST_CASE("profiler traces: DataParallel, one process with several GPUs") {
  Kernels kernels;
  kernels.trace.annotation("DataParallel.forward", 1001, 1005)
      .add("kernel", "replica", 1010, 1030, R"("device": 1, "stream": 7)")
      .kernel("ncclDevKernel_Broadcast", 1075, 1080, 99, 1004, R"(, "device": 1)");
  Traces traces;
  traces.add(kernels.trace);
  const auto run = traces.run();
  CHECK(run->option("sync") == "pytorch-data-parallel");
  const RankIteration rank = run->rows(0, 1).front().ranks[0];
  CHECK(rank[Phase::kExposed] == about_ms(5));
  CHECK(std::isnan(rank[Phase::kWait]));
}

TEST_CASE("profiler traces: the network is named, else the folder names it") {
  Traces traces;
  std::filesystem::create_directory(traces.folder / "resnet");
  traces.paths.push_back(traces.folder / "resnet" / "a.json");
  std::ofstream(traces.paths.back()) << Kernels().trace.text();
  CHECK(run_of_traces(traces.paths)->option("model") == "resnet");
  CHECK(run_of_traces(traces.paths, {0, "vit"})->option("model") == "vit");
}

TEST_CASE(
    "profiler traces: of an unknown batch they are repeats of no run and compared with none") {
  for (const std::int64_t batch : {0, 16}) {
    Traces traces;
    traces.add_two_ranks();
    RunSet set;
    for (const char* name : {"a", "b"})
      set.runs.push_back(describe_run(name, traces.run(batch)));
    CHECK(group_runs(set).size() == (batch > 0 ? 1 : 2));
    CHECK(is_known_work(set.runs[0]) == (batch > 0));
    CHECK(images_text(set.runs[0]) == (batch > 0 ? "16 images per rank" : "an unknown batch"));
  }
}

TEST_CASE("profiler traces: tables of one rank of several") {
  Traces traces;
  traces.add(rank_of_two(1, 0));
  RunSet set;
  set.runs.push_back(describe_run("a", traces.run()));
  CHECK(devices_of(set.runs[0]) == "cpu");
  CHECK(make_split_table(set, {}).rows.size() == 2);  // the rank, the mean
  CHECK(make_modes_table(set, {}).rows.size() == 1);
  CHECK(make_stragglers_table(set, {}).rows.size() == 1);
  CHECK(make_traffic_table(set, {}).rows.size() == 2);
  CHECK(shown(make_summary_table(set, {}), 0, "wait_ms") == "n/a");
  CHECK(shown(make_summary_table(set, {}), 0, "to_fastest") == "n/a");
  CHECK(shown(make_modes_table(set, {}), 0, "images_per_s") == "n/a");
}
