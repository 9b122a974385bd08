#include "analysis/curves/curve_file.h"

#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "collectives/printer.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

// The layouts are those that the tools print: nccl-tests 2.19.6 (src/util.cu) and 2.0.0, OSU
// Micro-Benchmarks 7.4 and Intel MPI Benchmarks 2021.11, the last two as they ran on two ranks.

namespace {

CurveFileContent content_of(const std::string& text, std::int64_t ranks = 0) {
  const TestFolder folder;
  std::ofstream(folder / "curve.txt") << text;
  return read_curve_file({folder / "curve.txt", ranks});
}

std::vector<CalibrationRow> rows_of(const std::string& text, std::int64_t ranks = 0) {
  const CurveFileContent content = content_of(text, ranks);
  REQUIRE(content.curves.size() == 1);
  return content.curves[0].rows;
}

std::string why_not(const std::string& text, std::int64_t ranks = 0) {
  return error_text(ExitCode::kBadData, [&] { content_of(text, ranks); });
}

std::string nccl_head(int ranks, const std::string& program = "") {
  std::string text = program.empty() ? "" : "# Collective test starting: " + program + "\n";
  text +=
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 1 iters: 20 agg "
      "iters: 1 validation: 1 graph: 0 unalign: 0\n#\n# Using devices\n";
  for (int rank = 0; rank < ranks; ++rank)
    text += fmt::format(
        "#  Rank {:2} Group  0 Pid {:6} on      node0 device {:2} [0000:1b:00] NVIDIA H100 80GB "
        "HBM3\n",
        rank, 3000 + rank, rank);
  return text;
}

const std::string kNcclColumns =
    "#\n#                                                              out-of-place                "
    " "
    "      in-place          \n"
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     "
    "time "
    "  algbw   busbw  #wrong \n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             "
    "(us) "
    " (GB/s)  (GB/s)         \n";

/// All-reduces of 4 ranks: busbw = 1.5 algbw.
const std::string kNcclRows =
    "     1048576        262144     float     sum      -1    60.00   17.48   26.21       0    "
    "50.00 "
    "  20.97   31.46       0\n"
    "     4194304       1048576     float     sum      -1   1.2e+02   34.95   52.43       0   "
    "110.0 "
    "  38.13   57.20       3\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 35.2 \n#\n";

}  // namespace

TEST_CASE("curve file: nccl-tests' text") {
  const std::string text = "NCCL version 2.28.3+cuda13.0\n" + nccl_head(4, "all_reduce_perf") +
                           "node0:31:31 [0] NCCL INFO comm 0x55 rank 0 nranks 4\n" + kNcclColumns +
                           kNcclRows;
  const CurveFileContent content = content_of(text);
  REQUIRE(content.curves.size() == 1);
  CHECK(content.curves[0].ranks == 4);
  CHECK(content.remarks.empty());
  const auto& rows = content.curves[0].rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kind == CollectiveKind::kAllReduce);
  CHECK(rows[0].transport == "nccl");
  CHECK(rows[0].cadence == "back-to-back");
  CHECK(rows[0].type == "float");
  CHECK(rows[0].bytes == 1048576);
  CHECK(rows[0].median_s == Approx(50e-6));  // in place
  CHECK(rows[0].repetitions == 20);
  CHECK(rows[0].wrong == 0);
  CHECK(rows[1].wrong == 3);
}

TEST_CASE("curve file: nccl-tests' columns in all their forms") {
  SUBCASE("a collective that is not named is found by its columns") {
    CHECK(rows_of(nccl_head(4) + kNcclColumns + kNcclRows)[0].kind == CollectiveKind::kAllReduce);
  }
  SUBCASE("unless two have the same") {
    std::string rows = kNcclRows;
    for (std::size_t at; (at = rows.find("sum")) != rows.npos;)
      rows.replace(at, 3, "none");
    CHECK(
        contains(why_not(nccl_head(4) + kNcclColumns + rows), "its columns are of no collective"));
    // busbw = 0.75 algbw
    const std::string gathered =
        "     1048576         65536     float    none      -1    60.00   17.48   13.11       0    "
        "50.00   20.00   15.00       0\n";
    CHECK(contains(why_not(nccl_head(4) + kNcclColumns + gathered),
                   "does not name its collective, which may be allgather or alltoall"));
    const auto named = rows_of(nccl_head(4, "build/all_gather_perf") + kNcclColumns + gathered);
    CHECK(named[0].kind == CollectiveKind::kAllGather);
    CHECK(named[0].bytes == 262144);            // of one rank
    CHECK(named[0].median_s == Approx(60e-6));  // out of place
  }
  SUBCASE("N/A, blank and with the time of day") {
    const auto only = [](const std::string& groups) {
      return rows_of(nccl_head(4, "all_reduce_perf") + kNcclColumns +
                     "     1048576        262144     float     sum      -1" + groups + "\n")[0];
    };
    CHECK(only("    60.00   17.48   26.21     N/A      N/A     N/A     N/A     N/A").median_s ==
          Approx(60e-6));
    CHECK(only("                                    50.00   20.97   31.46       0").median_s ==
          Approx(50e-6));
    std::string with_time = kNcclColumns;
    with_time.replace(with_time.rfind("#wrong"), 6, "#wrong    timestamp");
    CHECK(rows_of(nccl_head(4, "all_reduce_perf") + with_time +
                  "     1048576        262144     float     sum      -1    60.00   17.48   26.21  "
                  "     0    50.00   20.97   31.46       0  2026-11-25 09:15:22\n")[0]
              .median_s == Approx(50e-6));
  }
  SUBCASE("of version 2.0: no root, no group") {
    std::string old = nccl_head(4);
    for (std::size_t at; (at = old.find("Group  0 ")) != old.npos;)
      old.erase(at, 9);
    old +=
        "#       size         count      type   redop     time   algbw   busbw  error     time   "
        "algbw   busbw  error\n"
        "     1048576        262144     float     sum    60.00   17.48   26.21  1e-07    50.00   "
        "20.97   31.46  1e-07\n";
    const auto rows = rows_of(old);
    CHECK(rows[0].kind == CollectiveKind::kAllReduce);
    CHECK(rows[0].median_s == Approx(50e-6));
  }
  SUBCASE("a barrier after each call") {
    std::string text = nccl_head(4, "all_reduce_perf");
    text += "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
    CHECK(rows_of(text + kNcclColumns + kNcclRows)[0].cadence == "isolated");
  }
  SUBCASE("half is taken for float, and said") {
    std::string rows = kNcclRows;
    for (std::size_t at; (at = rows.find("float")) != rows.npos;)
      rows.replace(at, 5, " half");
    const auto content = content_of(nccl_head(4, "all_reduce_perf") + kNcclColumns + rows);
    CHECK(content.curves[0].rows[0].type == "float");
    CHECK(contains(content.remarks.at(0), "values are half; the curve is taken for float"));
  }
}

TEST_CASE("curve file: lines of any length, and lines of other programs between") {
  const std::string head = nccl_head(4, "all_reduce_perf"), long_line(1000000, 'x');
  for (const char* begin : {"# nThread ", "#  Rank 0 ", "# Collective test starting: ", "1 ", ""})
    CHECK(rows_of(head + kNcclColumns + begin + long_line + "\n" + kNcclRows).size() == 2);
}

TEST_CASE("curve file: several programs of nccl-tests in one file") {
  const std::string text =
      nccl_head(4, "all_reduce_perf") + kNcclColumns + kNcclRows + nccl_head(2, "broadcast_perf") +
      kNcclColumns +
      "     1048576        262144     float    none       0    60.00   17.48   "
      "17.48       0    40.00   26.21   26.21       0\n";
  const CurveFileContent content = content_of(text);
  REQUIRE(content.curves.size() == 2);
  CHECK(content.curves[0].ranks == 2);
  CHECK(content.curves[0].rows[0].kind == CollectiveKind::kBroadcast);
  CHECK(content.curves[1].ranks == 4);
  CHECK(content_of(text, 4).curves.size() == 1);
  CHECK(contains(why_not(text, 8), "holds nothing of 8 ranks"));
}

TEST_CASE("curve file: nccl-tests' text that is refused") {
  CHECK(contains(why_not(nccl_head(1) + nccl_head(1) + kNcclColumns + kNcclRows),
                 "line 8: rank 0 stands here twice: built without MPI=1"));
  const std::string head = nccl_head(4, "all_reduce_perf") + kNcclColumns;
  CHECK(contains(why_not(head + "     1048576        262144     float     sum      -1    60.00\n"),
                 "it has 6 columns, and the table 13"));
  CHECK(contains(
      why_not(head +
              "     1048576        262144     float     sum      -1    60.00   17.48   26.21 "
              "      0    5O.00   20.97   31.46       0\n"),
      "'5O.00' is not a number"));
  CHECK(contains(why_not(nccl_head(4, "hypercube_perf") + kNcclColumns + kNcclRows),
                 "hypercube_perf has no counterpart here"));
  CHECK(contains(why_not(head), "holds no time of a collective"));
  CHECK(contains(why_not(nccl_head(1, "all_reduce_perf") + kNcclColumns + kNcclRows),
                 "a table of one rank is left out"));
}

TEST_CASE("curve file: JSON of nccl-tests and of gradsync-calibrate") {
  const std::string page = R"({"version": 3, "args": ["./build/all_reduce_perf", "-J", "x.json"],
    "config": {"blocking_collectives": "false", "devices": [
      {"rank": 0, "group": 0, "hostname": "a"}, {"rank": 1, "group": 0, "hostname": "b"}]},
    "results": [{"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "-1",
      "out_of_place": {"time": 60.0, "alg_bw": 17.48, "bus_bw": 17.48, "nwrong": 0},
      "in_place": {"time": 50.0, "alg_bw": 20.97, "bus_bw": 20.97, "nwrong": null},
      "in_place_per_iter": {"min_us": 45, "max_us": 70, "p50_us": 49, "stdev_us": 2},
      "actual_iterations": 20}]})";
  const auto rows = rows_of(page);
  CHECK(rows[0].bytes == 1048576);
  CHECK(rows[0].mean_s == Approx(50e-6));
  CHECK(rows[0].median_s == Approx(49e-6));
  CHECK(rows[0].deviation_s == Approx(2e-6));
  CHECK(rows[0].wrong == -1);
  CHECK(rows[0].repetitions == 20);

  CalibrationRow row;
  row.kind = CollectiveKind::kAllGather;
  row.transport = "shm";
  row.cadence = "isolated";
  row.bytes = 4096;
  row.repetitions = 7;
  row.median_s = 12e-6;
  row.mean_s = 13e-6;
  const std::vector<RankPlace> places(3);
  const calibrate::CalibrateOptions options;
  const auto again = content_of(calibrate::calibration_json(
      calibration_curves({row}, places.size()), {places, "gradsync-calibrate", "", "", options}));
  REQUIRE(again.curves.size() == 1);
  CHECK(again.curves[0].ranks == 3);
  CHECK(again.curves[0].rows[0].kind == row.kind);
  CHECK(again.curves[0].rows[0].transport == "shm");
  CHECK(again.curves[0].rows[0].bytes == 4096);
  CHECK(again.curves[0].rows[0].median_s == Approx(12e-6));

  CHECK(contains(why_not(page.substr(0, 300)), "is not nccl-tests' JSON"));
  CHECK(contains(why_not("{}"), "is not nccl-tests' JSON"));
  CHECK(contains(why_not(std::string(100000, '[')), "is no curve that is known"));
  CHECK(contains(why_not("{\"a\":" + std::string(100000, '[')), "is not nccl-tests' JSON"));
  std::string negative = page;
  negative.replace(negative.find("1048576"), 7, "1.5e300");
  CHECK(contains(why_not(negative), "no integer"));
}

TEST_CASE("curve file: OSU Micro-Benchmarks") {
  const std::string full =
      "\n# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_CHAR.\n"
      "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        "
      "Validation\n"
      "4                       2.80              0.81              4.80        1000              "
      "Pass\n"
      "16                      0.42              0.41              0.43        1000              "
      "Fail\n";
  const auto content = content_of(full, 2);
  REQUIRE(content.curves.size() == 1);
  const auto& rows = content.curves[0].rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kind == CollectiveKind::kAllReduce);
  CHECK(rows[0].transport == "mpi");
  CHECK(rows[0].cadence == "isolated");
  CHECK(rows[0].median_s == Approx(4.8e-6));  // of the slowest rank
  CHECK(rows[0].repetitions == 1000);
  CHECK(rows[1].wrong == 1);
  CHECK(contains(content.remarks.at(0), "values are MPI_CHAR; the curve is taken for float"));
  CHECK(contains(why_not(full), "does not tell how many ranks took part"));

  const std::string plain =
      "# OSU MPI-CUDA Reduce_scatter Latency Test v7.4\n# Datatype: MPI_FLOAT.\n"
      "# Size       Avg Latency(us)\n1024                    4.50\n";
  const auto parts = content_of(plain, 4);
  CHECK(parts.curves[0].rows[0].bytes == 256);  // of one rank
  CHECK(parts.curves[0].rows[0].median_s == Approx(4.5e-6));
  CHECK(parts.remarks.empty());
  std::string cut = plain;  // "# Datatype: ", and nothing behind it
  cut.erase(cut.find("MPI_FLOAT."), 10);
  CHECK(content_of(cut, 4).remarks.empty());
  CHECK(contains(why_not("# OSU MPI Non-blocking Allreduce Latency Test v7.4\n# Size  Overall(us)\n"
                         "4  2.80\n",
                         2),
                 "Non-blocking Allreduce is left out"));
}

TEST_CASE("curve file: Intel MPI Benchmarks") {
  const auto table = [](const std::string& name, int ranks, const std::string& rows) {
    return fmt::format(
        "#----------------------------------------------------------------\n"
        "# Benchmarking {} \n# #processes = {} \n"
        "#----------------------------------------------------------------\n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n{}\n",
        name, ranks, rows);
  };
  const std::string head = "#    Intel(R) MPI Benchmarks 2021.11, MPI-1 part\n";
  const std::string rows =
      "            0         1000         0.03         0.03         0.03\n"
      "        65536          640        38.50        38.60        38.55\n";
  const std::string text =
      head + table("Allreduce", 2, rows) + table("Allreduce", 4, rows) +
      table("Reduce_scatter", 4, rows) +
      table("Bcast", 2,
            rows + "      4194304 time-out.; Time limit (secs_per_sample * n) reached\n") +
      "# Benchmarking Barrier \n# #processes = 2 \n#repetitions  t_min[usec]  t_max[usec]\n"
      "         1000         4.45         4.45         4.45\n";
  const CurveFileContent content = content_of(text);
  REQUIRE(content.curves.size() == 2);
  CHECK(content.curves[0].ranks == 2);
  REQUIRE(content.curves[0].rows.size() == 2);  // 0 bytes are no message
  CHECK(content.curves[0].rows[0].median_s == Approx(38.6e-6));
  CHECK(content.curves[0].rows[0].repetitions == 640);
  CHECK(content.curves[0].rows[1].kind == CollectiveKind::kBroadcast);
  CHECK(content.curves[1].rows[1].kind == CollectiveKind::kReduceScatter);
  CHECK(content.curves[1].rows[1].bytes == 16384);
  CHECK(contains(content.remarks.at(0), "Barrier left out"));
  CHECK(
      contains(why_not(head + "# Benchmarking Allreduce \n" + rows), "no line '# #processes = N'"));
  CHECK(contains(why_not(table("Allreduce", 999999999, rows)), "more than 65536"));
}

TEST_CASE("curve file: run files, unknown files, and names") {
  const TestFolder folder;
  CHECK(contains(why_not(""), "is no curve that is known"));
  CHECK(contains(why_not("size time\n8 9\n"), "and what nccl-tests, osu_allreduce and IMB-MPI1"));
  error_text(ExitCode::kNoInput, [&] { read_curve_file({folder / "none.txt", 0}); });
  {
    Recorder recorder(folder / "run.h5", sample_info({"ddp", 2}));
    recorder.finish(RunStatus::kComplete);
  }
  CHECK(contains(error_text(ExitCode::kBadData,
                            [&] {
                              read_curve_file({folder / "run.h5", 0});
                            }),
                 "holds no calibration"));
  CHECK(parse_curve_file("a:b.txt").path == "a:b.txt");
  CHECK(parse_curve_file("osu.txt:ranks=4").path == "osu.txt");
  CHECK(parse_curve_file("osu.txt:ranks=4").ranks == 4);
  for (const char* wrong : {"osu.txt:ranks=1", "osu.txt:ranks=65537", "osu.txt:ranks=x", ""})
    refusal([&] { parse_curve_file(wrong); });
}
