// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/curve_file.h"

#include <fstream>
#include <functional>
#include <set>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/printer.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

// The layouts are those that the tools print in the versions that docs/numbers.md lists.

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

std::string without(std::string text, const std::string& part) {
  for (std::size_t at; (at = text.find(part)) != text.npos;)
    text.erase(at, part.size());
  return text;
}

std::string remarks_of(const CurveFileContent& content) {
  return fmt::format("{}", fmt::join(content.remarks, "; "));
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
                   "which may be allgather or alltoall"));
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
  for (const char* begin : {"#  Rank 0 ", "# ", "1 ", ""})
    CHECK(rows_of(head + kNcclColumns + begin + long_line + "\n" + kNcclRows).size() == 2);
  for (const char* begin : {"# nThread ", "# Collective test starting: "})
    CHECK(rows_of(std::string(begin) + long_line + "\n" + head + kNcclColumns + kNcclRows).size() ==
          2);
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
  std::string two = nccl_head(2);
  two.replace(two.find("Rank  1"), 7, "Rank  0");
  CHECK(contains(why_not(two + kNcclColumns + kNcclRows),
                 "rank 0 stands there twice: built without MPI=1"));
  CHECK(contains(why_not(nccl_head(4) + kNcclColumns + kNcclColumns + kNcclRows),
                 "its columns stand there twice: built without MPI=1"));
  const std::string head = nccl_head(4, "all_reduce_perf") + kNcclColumns;
  CHECK(contains(why_not(head + "     1048576        262144     float     sum      -1    60.00\n"),
                 "it has 6 columns, and the table 13"));
  CHECK(contains(
      why_not(head +
              "     1048576        262144     float     sum      -1    60.00   17.48   26.21 "
              "      0    5O.00   20.97   31.46       0\n"),
      "'5O.00' is not a number"));
  CHECK(contains(why_not(nccl_head(4, "hypercube_perf") + kNcclColumns + kNcclRows),
                 "hypercube_perf left out"));
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

TEST_CASE("curve file: what gradsync-calibrate prints") {
  std::string text = "# gradsync-calibrate: nccl-tests' columns\n";
  for (const calibrate::OperationEntry& operation : calibrate::operations())
    for (const char* transport : {"shm", "two-level", calibrate::kMpiRing}) {
      CalibrationRow row;
      row.kind = operation.kind;
      row.bytes = 4096;
      row.median_s = 12e-6;
      row.wrong = 0;
      const calibrate::PlannedCell cell{&operation, "isolated", {}};
      CalibrationCurve curve;
      curve.rows = {row};
      text += calibrate::calibration_header(cell, transport, 3, {.timed = 7}, {}) +
              calibrate::calibration_line(operation, row, 3) + calibrate::calibration_footer(curve);
    }
  const CurveFileContent content = content_of(text);
  REQUIRE(content.curves.size() == 1);
  CHECK(content.curves[0].ranks == 3);
  std::set<std::pair<CollectiveKind, std::string>> found;
  for (const CalibrationRow& row : content.curves[0].rows) {
    found.insert({row.kind, row.transport});
    CHECK(row.cadence == "isolated");
    CHECK(row.bytes == 4096);
    CHECK(row.median_s == Approx(12e-6));
    CHECK(row.repetitions == 7);
    CHECK(row.wrong == 0);
  }
  std::set<CollectiveKind> kinds;
  for (const calibrate::OperationEntry& operation : calibrate::operations())
    kinds.insert(operation.kind);
  CHECK(found.size() == 3 * kinds.size());
  CHECK_FALSE(contains(remarks_of(content), "left out"));
  CHECK(found.contains({CollectiveKind::kAllReduce, calibrate::kMpiRing}));
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
                 "Non-blocking Allreduce left out"));
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
  CHECK(contains(remarks_of(content), "Barrier left out"));
  CHECK(contains(why_not(head + "# Benchmarking Allreduce \n" + rows),
                 "rows below '# Benchmarking Allreduce' left out"));
  CHECK(contains(why_not(head + without(table("Allreduce", 2, rows), " #processes = 2")),
                 "no line '# #processes = N'"));
  CHECK(contains(why_not(table("Allreduce", 999999999, rows)), "more than 65536"));
}

namespace {

/// Each line behind what `prefix` returns for its number.
template <typename Prefix>
std::string prefixed(const std::string& text, const Prefix& prefix) {
  std::string result;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    result += prefix(number++) + text.substr(at, end - at);
    at = end;
  }
  return result;
}

const std::string kOsuTitle =
    "\n# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n";
const std::string kOsuRows = "1024                    2.00\n2048                    3.00\n";

std::string imb_table(const std::string& title, const std::string& rows,
                      const std::string& more_columns = "") {
  return fmt::format(
      "#----------------------------------------------------------------\n{}"
      "#----------------------------------------------------------------\n"
      "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]{}\n{}\n",
      title, more_columns, rows);
}

const std::string kImbRow = "         1024         1000         8.35         9.28         8.82";

}  // namespace

TEST_CASE("curve file: what launchers and loggers put before each line") {
  const std::string nccl = nccl_head(4, "all_reduce_perf") + kNcclColumns + kNcclRows;
  const std::string imb =
      imb_table("# Benchmarking Allreduce \n# #processes = 4 \n", kImbRow + "\n");
  const auto time = [](int line) { return fmt::format("{:02}:{:02}", line / 60, line % 60); };
  const std::vector<std::function<std::string(int)>> prefixes = {
      [](int) { return "[1,0]<stdout>:"; },
      [](int) { return "[prterun-a-77@1,0]<stdout>: "; },
      [](int) { return "0: "; },
      [](int) { return "[0] "; },
      [](int) { return "[default0]:"; },
      [](int) { return "rank 3: "; },
      [](int) { return "worker-0  | "; },
      [](int) { return "\x1b[36m(head, rank=0, pid=3808)\x1b[0m [1,0]<stdout>:"; },
      [](int line) { return fmt::format("{:6}\t", line); },
      [](int) { return "      "; },
      [](int) { return "> "; },
      [&](int line) { return "2026-08-06T05:" + time(line) + ".018Z "; },
      [&](int line) { return "[2026-08-06 05:" + time(line) + ",018] - root - INFO - "; },
      [&](int line) {
        return (line < 5 ? "Wed Sep 30 23:" : "Thu Oct  1 00:") + time(line) +
               " 2026[1,0]<stdout>:";
      },
  };
  for (const auto& prefix : prefixes)
    for (const bool crlf : {false, true}) {
      const auto as_logged = [&](const std::string& text) {
        std::string logged = prefixed(text, prefix);
        for (std::size_t at = 0; crlf && (at = logged.find('\n', at)) != logged.npos; at += 2)
          logged.insert(at, "\r");
        return "\xEF\xBB\xBFWarning: Permanently added 'worker-1' to the list\n" + logged;
      };
      INFO(prefix(7));
      const auto rows = rows_of(as_logged(nccl));
      REQUIRE(rows.size() == 2);
      CHECK(rows[0].median_s == Approx(50e-6));
      CHECK(rows_of(as_logged(kOsuTitle + kOsuRows), 2).size() == 2);
      CHECK(rows_of(as_logged(imb)).size() == 1);
    }
  SUBCASE("mpirun's tag within a line") {
    std::string text = nccl;
    for (std::size_t at = 0; (at = text.find("sum      -1", at)) != text.npos; at += 11)
      text.insert(at + 11, "[1,0]<stdout>:");
    CHECK(rows_of(text).size() == 2);
  }
  SUBCASE("lines of other ranks between") {
    std::string text = prefixed(nccl, [](int) { return "0: "; });
    text.insert(text.find("0:      4194304"), "1: node1:26 [0] NCCL INFO comm 0x7f rank 1\n1: \n");
    CHECK(rows_of(text).size() == 2);
  }
  CHECK(contains(why_not("\xFF\xFE#"), "is UTF-16"));
  CHECK(contains(why_not("a: " + kOsuTitle.substr(1) + kOsuRows, 2), "no row has a payload"));
  const std::string other = prefixed(kOsuTitle.substr(1), [](int) { return "a: "; }) + kOsuRows;
  CHECK(contains(why_not(other, 2), "rows that do not begin as their title does left out"));
  CHECK(contains(why_not("# bytes  N  time\n1024  256  0.151\n"),
                 "known; it holds rows below '# bytes  N  time'"));
}

TEST_CASE("curve file: a title or columns that are not known end a table") {
  const std::string other = "1024                    0.10\n4096                    0.20\n";
  for (const char* title :
       {"# OSU MPI_Put Latency Test v5.6.3\n# Window creation: MPI_Win_allocate\n# Size       "
        "Latency (us)\n",
        "# OSU MPI_Get Bandwidth Test v5.6.3\n# Size       Bandwidth (MB/s)\n",
        "# OSU MPI Barrier Latency Test v5.6.3\n# Avg Latency(us)\n", "# OSU Something Else\n",
        "# My test\n", "Size   Time(us)\n", "my benchmark\n"}) {
    INFO(title);
    const CurveFileContent content = content_of(kOsuTitle + kOsuRows + title + other, 2);
    REQUIRE(content.curves.size() == 1);
    REQUIRE(content.curves[0].rows.size() == 2);
    CHECK(content.curves[0].rows[1].median_s == Approx(3e-6));
    CHECK(contains(remarks_of(content), "left out"));
  }
  SUBCASE("but not the lines of a launcher") {
    CHECK(
        rows_of(kOsuTitle + "1024  2.00\nWARNING: there was an error\n\n2048  3.00\n", 2).size() ==
        2);
  }
  SUBCASE("columns of a known title") {
    const auto content = content_of(
        kOsuTitle + kOsuRows + "# OSU MPI Reduce Latency Test v9\n# Size  Wait(us)\n8  1.0\n", 2);
    CHECK(content.curves.at(0).rows.size() == 2);
    CHECK(contains(remarks_of(content), "columns '# Size  Wait(us)' left out"));
  }
  SUBCASE("of nccl-tests") {
    const auto content =
        content_of(nccl_head(4, "all_reduce_perf") + kNcclColumns + kNcclRows +
                   "# Collective: allreduce, isolated\n" + kNcclColumns + kNcclRows);
    CHECK(content.curves.at(0).rows.size() == 2);
    CHECK(contains(remarks_of(content), "rows below "));
    std::string columns = kNcclColumns;
    columns.replace(columns.rfind("busbw"), 5, "speed");
    CHECK(contains(why_not(nccl_head(4, "all_reduce_perf") + columns + kNcclRows),
                   "its columns are not known"));
    columns = kNcclColumns;
    columns.replace(columns.find("  time"), 6, "cputime");
    for (const char* order : {"# size count type timestamp time algbw busbw error\n",
                              "# size count type time algbw busbw error redop\n"})
      CHECK(contains(why_not(nccl_head(4, "all_reduce_perf") + order + "8 2 float 1 2 3 4\n"),
                     "its columns are not known"));
    CHECK(contains(why_not(nccl_head(4, "all_reduce_perf") + columns + kNcclRows), "of the CPU"));
  }
}

TEST_CASE("curve file: runs, failed starts and crashes in one log") {
  const std::string run = nccl_head(4, "all_reduce_perf") + kNcclColumns + kNcclRows;
  const std::string cut = run.substr(0, run.find("     4194304") + 40);
  SUBCASE("a start that failed") {
    CHECK(
        rows_of(nccl_head(2, "all_reduce_perf") + "node0: Test NCCL failure common.cu:1204\n" + run)
            .size() == 2);
  }
  SUBCASE("a run that crashed in a row, and the same again") {
    const auto content = content_of(cut + "node0: Test NCCL failure\n" + run);
    CHECK(content.curves.at(0).rows.size() == 3);
    CHECK(contains(remarks_of(content), "it has 7 columns, and the table 13"));
    CHECK(contains(remarks_of(content), "stand there 2 times, within 0 %: taken for repeats"));
  }
  SUBCASE("rows that the file ends in, or a crash") {
    const auto osu = content_of(kOsuTitle + kOsuRows + "4096                    17", 2);
    CHECK(osu.curves.at(0).rows.size() == 2);
    CHECK(contains(remarks_of(osu), "the file ends within it"));
    CHECK(rows_of(kOsuTitle + "1024  2.00\n2048  3.00", 2).size() == 2);
    // Out of place is whole, in place is not begun.
    const std::string half = run.substr(0, run.find("       0   110.0") + 8) + "\n";
    CHECK(rows_of(half).size() == 1);
    CHECK(contains(remarks_of(content_of(half)), "it has 9 columns, and the table 13"));
  }
  SUBCASE("of other settings") {
    std::string slow = run;
    slow.replace(slow.find("   50.00"), 8, "   90.00");
    CHECK(contains(why_not(run + slow),
                   "1048576 bytes of float stand there 2 times, with 50.00 and "
                   "90.00 us: runs of other"));
    const std::string osu = kOsuTitle + "1024  2.0\n" + kOsuTitle + "1024  3.0\n";
    CHECK(contains(why_not(osu, 4), "1024 bytes of float stand there 2 times"));
  }
}

TEST_CASE("curve file: what the rows tell of a collective that is not named") {
  const auto table = [](const std::string& columns, const std::string& row, int ranks = 2) {
    std::string head = without(nccl_head(ranks), "Group  0 ");
    return head + "#       size         count      type " + columns + "\n" + row + "\n";
  };
  const std::string error = "  time   algbw   busbw  error     time   algbw   busbw  error";
  const std::string wrong = "  time   algbw   busbw #wrong     time   algbw   busbw #wrong";
  SUBCASE("all-gather before August 2022: no redop, no root") {
    CHECK(contains(why_not(table(error,
                                 " 1048576 32768 float 52.00 20.16 17.64 0e+00 50.49 20.77 18.17 "
                                 "0e+00",
                                 8)),
                   "which may be allgather or alltoall"));
    // Before June 2020 busbw is algbw.
    CHECK(contains(why_not(table(error,
                                 " 1048576 131072 float 79.75 6.57 6.57 0e+00 77.43 6.77 6.77 "
                                 "0e+00")),
                   "which may be allgather or hypercube_perf"));
  }
  SUBCASE("reduce-scatter of 2019: the count is of a part") {
    const auto rows = rows_of(table("redop " + error,
                                    " 1048576 131072 float sum 79.75 6.57 6.57 0e+00 77.43 6.77 "
                                    "6.77 0e+00"));
    CHECK(rows[0].kind == CollectiveKind::kReduceScatter);
    CHECK(rows[0].bytes == 524288);
    CHECK(rows[0].median_s == Approx(79.75e-6));
  }
  SUBCASE("send/receive on two ranks") {
    const std::string row = " 1048576 262144 float sum -1 125.0 8.39 8.39 ";
    const auto content = content_of(table("redop root " + wrong, row + "0 121.4 8.64 8.64 N/A"));
    CHECK(content.curves.at(0).rows[0].kind == CollectiveKind::kSendReceive);
    CHECK(contains(remarks_of(content), "is of sendrecv, by its columns"));
    CHECK(rows_of(table("redop root " + wrong, row + "0 121.4 8.64 8.64 0"))[0].kind ==
          CollectiveKind::kAllReduce);
    CHECK(contains(why_not(table("redop root " + wrong, row + "N/A 121.4 8.64 8.64 N/A")),
                   "which may be allreduce or sendrecv"));
  }
  SUBCASE("all-to-all of 2020: the column redop is blank") {
    CHECK(contains(why_not(table("redop " + error,
                                 " 1048576 131072 float 79.75 13.15 6.57 0e+00 77.43 13.54 6.77 "
                                 "N/A")),
                   "which may be alltoall or alltoallv_perf"));
  }
}

TEST_CASE("curve file: nccl-tests' options and rccl-tests") {
  const auto head = [](int ranks) { return nccl_head(ranks, "all_reduce_perf"); };
  SUBCASE("reductions and roots are separated") {
    std::string rows = kNcclRows.substr(0, kNcclRows.find('\n') + 1);
    std::string slow = rows;
    slow.replace(slow.find(" sum"), 4, "prod").replace(slow.find("   50.00"), 8, "  150.00");
    const auto content = content_of(head(4) + kNcclColumns + slow + rows);
    CHECK(content.curves.at(0).rows.size() == 1);
    CHECK(content.curves[0].rows[0].median_s == Approx(50e-6));
    CHECK(contains(remarks_of(content), "the reduction sum is used, prod left out"));
    CHECK(contains(remarks_of(content_of(head(4) + kNcclColumns + slow)),
                   "the reduction is prod; taken for sum"));
    const std::string root =
        "     1048576        262144     float    none       {}    60.00   17.48   "
        "17.48       0    {}   26.21   26.21       0\n";
    const auto roots = content_of(nccl_head(2, "broadcast_perf") + kNcclColumns +
                                  fmt::format(fmt::runtime(root), 1, "80.00") +
                                  fmt::format(fmt::runtime(root), 0, "40.00"));
    CHECK(roots.curves.at(0).rows.size() == 1);
    CHECK(roots.curves[0].rows[0].median_s == Approx(40e-6));
    CHECK(contains(remarks_of(roots), "root 0 is used, 1 left out"));
  }
  SUBCASE("blocking in the words of ten years") {
    const auto cadence = [&](const std::string& words) {
      const auto content =
          content_of(head(4) + "# Blocking Enabled: " + words + " \n" + kNcclColumns + kNcclRows);
      CHECK(contains(remarks_of(content), "-z 2") == (words.find("no barrier") != words.npos));
      return content.curves.at(0).rows[0].cadence;
    };
    CHECK(cadence("wait for completion and barrier after each collective") == "isolated");
    CHECK(cadence("wait and barrier after each inner iteration (-m)") == "isolated");
    CHECK(cadence("wait and barrier after each outer iteration (-n); time excludes barrier") ==
          "isolated");
    CHECK(cadence("wait after each inner iteration (-m), no barrier") == "back-to-back");
  }
  SUBCASE("in place alone, a second cycle, an asterisk") {
    std::string text =
        head(4) +
        "rccl-tests: Version develop:83d38d9\n"
        "#                                                    in-place\n"
        "#       size         count      type   redop    root     time   algbw   busbw "
        "#wrong\n";
    const std::string row =
        "     1048576        262144     float     sum      -1    50.00   20.97   31.46      0\n";
    CHECK(rows_of(text + row)[0].median_s == Approx(50e-6));
    CHECK(rows_of(text + row + "# Testing 2 cycle.\n" + row).size() == 2);
    text.replace(text.find("#wrong"), 6, " error");
    std::string marked = row;
    marked.replace(marked.rfind(" 0\n"), 3, " 7e-01*\n");
    CHECK(rows_of(text + row)[0].wrong == 0);
    CHECK(rows_of(text + marked)[0].wrong == 1);
    const std::string heading =
        "# nThreads: 1 nGpus: 4 nRanks: 1 minBytes: 8 maxBytes: 8 step: 2(factor) "
        "warmupIters: 5 iters: 30 validation: 1 \n";
    std::string old = nccl_head(4);
    old.replace(0, old.find('\n') + 1, heading);
    CHECK(rows_of(old + kNcclColumns + kNcclRows)[0].repetitions == 30);
  }
  SUBCASE("differences that fail mark no row, so that none counts") {
    std::string text = head(4) + kNcclColumns + kNcclRows;
    while (text.find("#wrong") != text.npos)
      text.replace(text.find("#wrong"), 6, " error");
    text.replace(text.find("       3\n"), 9, "       0\n");
    CHECK(rows_of(text)[0].wrong == 0);
    text.replace(text.find(": 0 OK"), 6, ": 5 FAILED");
    CHECK(rows_of(text)[0].wrong == 1);
  }
  SUBCASE("tests that have no counterpart, and binaries with a suffix") {
    const auto content = content_of(nccl_head(4, "alltoallv_perf") + kNcclColumns + kNcclRows +
                                    nccl_head(4, "all_reduce_perf_mpi") + kNcclColumns + kNcclRows);
    CHECK(content.curves.at(0).rows[0].kind == CollectiveKind::kAllReduce);
    CHECK(contains(remarks_of(content), "alltoallv_perf left out"));
  }
  SUBCASE("columns of the algorithm") {
    std::string columns = kNcclColumns;
    columns.insert(columns.rfind("#wrong") + 6, "     algo     proto   nchannels");
    std::string rows = kNcclRows;
    rows.insert(rows.find("31.46       0") + 13, "    RING      LL128          28");
    CHECK(content_of(head(4) + columns + rows).curves.at(0).rows[0].median_s == Approx(50e-6));
  }
  SUBCASE("per-iteration columns") {
    const std::string titles =
        "    time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%";
    CHECK(
        rows_of(
            head(4) + "#       size         count      type   redop    root" + titles + titles +
            "\n 1048576 262144 float sum -1 60 17.48 26.21 0 1 2 3 4 50 20.97 31.46 0 5 6 7 8\n")[0]
            .median_s == Approx(50e-6));
  }
  SUBCASE("groups") {
    std::string split = nccl_head(4, "all_reduce_perf");
    for (const char* rank : {"2", "3"})
      split.replace(split.find(fmt::format("Rank  {} Group  0", rank)), 16,
                    fmt::format("Rank  {} Group  1", *rank - '2'));
    std::string rows = kNcclRows;  // of 2 ranks: busbw = algbw
    rows.replace(rows.find("26.21"), 5, "17.48").replace(rows.find("31.46"), 5, "20.97");
    rows.replace(rows.find("52.43"), 5, "34.95").replace(rows.find("57.20"), 5, "38.13");
    CHECK(content_of(split + kNcclColumns + rows).curves.at(0).ranks == 2);
    CHECK(contains(why_not(split + kNcclColumns + kNcclRows), "it lists 2 ranks, and busbw"));
    split.replace(split.find("Rank  1 Group  1"), 16, "Rank  2 Group  0");
    CHECK(contains(why_not(split + kNcclColumns + rows), "its groups are of 3 and of 1 ranks"));
  }
}

TEST_CASE("curve file: ranks and modes of nccl-tests' JSON") {
  const auto page = [](const std::string& program, const std::string& config,
                       const std::string& devices, double factor, const std::string& more = "") {
    return fmt::format(
        R"({{"version": 3, "args": ["/opt/{}", "-J", "x.json"{}], "nccl_version": 22903,
"config": {{{}, "devices": [{}]}},
"results": [{{"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
"out_of_place": {{"time": 60.0, "alg_bw": 10.0, "bus_bw": {}, "nwrong": 0.0}},
"in_place": {{"time": 50.0, "alg_bw": 10.0, "bus_bw": {}, "nwrong": 0.0}}}}]}})",
        program, more, config, devices, 10 * factor, 10 * factor);
  };
  const std::string one = R"({"rank": 0, "group": 0, "pid": 7, "hostname": "a"})";
  const std::string other = R"({"rank": 4, "group": 0, "pid": 8, "hostname": "a"})";
  const std::string same = R"({"rank": 1, "group": 0, "pid": 7, "hostname": "a"})";
  const std::string four = R"("nthreads": 2, "ngpus": 2, "blocking_collectives": "true")";
  const std::string single = R"("nthreads": 1, "ngpus": 1, "blocking_collectives": "false")";
  CHECK(content_of(page("all_reduce_perf", four, one, 1.5)).curves.at(0).ranks == 4);
  CHECK(content_of(page("all_reduce_perf", four, one + "," + other, 1.75)).curves.at(0).ranks == 8);
  CHECK(content_of(page("broadcast_perf", four, one + "," + other, 1)).curves.at(0).ranks == 8);
  CHECK(content_of(page("all_reduce_perf", single, one + "," + other, 1)).curves.at(0).ranks == 2);
  // A list of all devices, not one a process.
  CHECK(content_of(page("all_reduce_perf", R"("nthreads": 1, "ngpus": 2)", one + "," + same, 1))
            .curves.at(0)
            .ranks == 2);
  CHECK(contains(why_not(page("all_reduce_perf", single, one + "," + other, 1.75)),
                 "its devices are 2 ranks, and bus_bw / alg_bw = 1.7500 is of another number"));
  const auto cadence = [&](const std::string& more) {
    return content_of(page("all_reduce_perf", four, one, 1.5, more));
  };
  CHECK(cadence(R"(, "-z", "1")").curves.at(0).rows[0].cadence == "isolated");
  CHECK(cadence(R"(, "-z", "1")").remarks.empty());
  CHECK(cadence(R"(, "--blocking=2")").curves.at(0).rows[0].cadence == "back-to-back");
  CHECK(contains(remarks_of(cadence("")), "does not tell whether a barrier follows"));

  const std::string good = page("all_reduce_perf", four, one, 1.5);
  std::string crashed =
      good.substr(0, good.find(",\n\"results\"")) + R"(, "errors": ["unhandled cuda error"]})";
  CHECK(contains(why_not(crashed), "the run crashed before its results: unhandled cuda error"));
  SUBCASE("several documents in a log, with failed starts, prefixes and a byte order mark") {
    const std::string log = "\xEF\xBB\xBF" + crashed + "\n" + good.substr(0, 150) +
                            "\nslurmstepd: error\n" + good + "\n";
    for (const char* prefix : {"", "[1,0]<stdout>:", "0: ", "2026-08-06T05:12:31.018Z "}) {
      INFO(prefix);
      const auto content = content_of(prefixed(log, [&](int) { return prefix; }));
      REQUIRE(content.curves.size() == 1);
      CHECK(content.curves[0].rows.size() == 1);
      CHECK(contains(remarks_of(content), "crashed before its results"));
    }
  }
  std::string launched = good;
  for (std::size_t at; (at = launched.find("\"time\"")) != launched.npos;)
    launched.replace(at, 6, "\"cpu_time\"");
  CHECK(contains(why_not(launched), "holds no time of a collective"));
}

TEST_CASE("curve file: rccl-tests' JSON") {
  const auto object = [](const char* name, int in_place, double time, double busbw,
                         const char* wrong = "0", int gpus = 2) {
    return fmt::format(
        R"({{"numCycle":0, "name":"{}", "nodes":1, "ranks":2, "ranksPerNode":2, "gpusPerRank":{}, "size":1048576, "type":"float", "redop":"sum", "inPlace":{}, "time":{}, "algBw":20, "busBw":{}, "wrong":"{}"}})",
        name, gpus, in_place, time, busbw, wrong);
  };
  const std::string both =
      object("AllReduce", 0, 60, 30) + "NEXT" + object("AllReduce", 1, 50, 30, "3");
  for (const char* between : {"\n", ",\n"})
    for (const char* prefix : {"", "0: "}) {
      std::string text = both;
      text.replace(text.find("NEXT"), 4, between);
      if (*between == ',') text = "[\n" + text + "\n]\n";
      const auto content = content_of(prefixed(text, [&](int) { return prefix; }));
      REQUIRE(content.curves.size() == 1);
      CHECK(content.curves[0].ranks == 4);
      REQUIRE(content.curves[0].rows.size() == 1);
      CHECK(content.curves[0].rows[0].kind == CollectiveKind::kAllReduce);
      CHECK(content.curves[0].rows[0].median_s == Approx(50e-6));
      CHECK(content.curves[0].rows[0].wrong == 1);
      CHECK(contains(remarks_of(content), "does not tell whether calls are blocking"));
    }
  CHECK(content_of(object("ReduceScatter", 0, 60, 15)).curves.at(0).rows[0].bytes == 262144);
  CHECK(contains(why_not(object("AllReduce", 0, 60, 30, "0", 4)), "not that of 8 ranks"));
  CHECK(contains(why_not(object("AlltoAllv", 0, 60, 15)), "AlltoAllv left out"));
}

TEST_CASE("curve file: OSU's titles, types and versions") {
  const auto first = [](const std::string& text) {
    return content_of(text, 2).curves.at(0).rows[0];
  };
  CHECK(first("# OSU RCCL-ROCM Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n8  1.5\n")
            .transport == "nccl");
  CHECK(first("# OSU Broadcast Latency Test v3.6\n# Size          Latency (us)\n8  1.5\n").kind ==
        CollectiveKind::kBroadcast);
  const std::string types =
      "# OSU MPI Allreduce Latency Test v7.4\n"
      "# Datatype: MPI_INT.\n# Size  Avg Latency(us)\n8  1.5\n"
      "# Datatype: MPI_FLOAT.\n# Size  Avg Latency(us)\n8  2.5\n";
  const auto content = content_of(types, 2);
  REQUIRE(content.curves.at(0).rows.size() == 2);
  CHECK(content.curves[0].rows[1].type == "float");
  // Each collective has types of its own.
  const auto suite = content_of(
      "# OSU MPI Broadcast Latency Test v7.4\n# Size  Avg Latency(us)\n8  1.5\n"
      "# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size  Avg Latency(us)\n8  "
      "2.5\n",
      2);
  for (const CalibrationRow& row : suite.curves.at(0).rows)
    CHECK(row.type == "float");
  CHECK(
      contains(remarks_of(suite), "allreduce: values are MPI_CHAR; the curve is taken for float"));
}

TEST_CASE("curve file: IMB's groups, maps, checks and types") {
  const std::string title = "# Benchmarking Allreduce \n# #processes = 4 \n";
  SUBCASE("-multi") {
    const std::string multi =
        "# Benchmarking Multi-Allreduce \n# ( 2 groups of 2 processes each running simultaneous ) "
        "\n"
        "# Group  0:     0    1\n#\n# Group  1:     2    3\n#\n";
    const auto content =
        content_of(imb_table(multi, kImbRow + "\n") + imb_table(title, kImbRow + "\n"));
    REQUIRE(content.curves.size() == 1);
    CHECK(content.curves[0].ranks == 4);
    CHECK(contains(remarks_of(content), "Multi-Allreduce left out"));
    std::string all_groups = imb_table(title, "\n            0" + kImbRow + "\n\n");
    all_groups.replace(all_groups.find("       #bytes"), 13, "        Group       #bytes");
    CHECK(rows_of(all_groups)[0].median_s == Approx(9.28e-6));
  }
  SUBCASE("-map, and processes that wait") {
    const std::string map =
        "# Benchmarking Allreduce \n# #processes = 4; rank order (rowwise): \n#    0    2\n#\n"
        "#    1    3\n#\n# ( 2 additional processes waiting in MPI_Barrier)\n";
    CHECK(content_of(imb_table(map, kImbRow + "\n")).curves.at(0).ranks == 4);
  }
  SUBCASE("titles with a hyphen; defects count nowhere") {
    const auto rows = rows_of(imb_table(
        "#- Benchmarking Allreduce \n#- #processes = 4 \n",
        kImbRow + "         0.00\n         2048  1000  1.0  2.0  1.5  3.00\n", "      defects"));
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].wrong == 0);
    CHECK(rows[1].wrong == 1);
  }
  SUBCASE("the type of reductions, and no barriers") {
    const auto content = content_of(
        "#    Intel(R) MPI Benchmarks 2021.3, MPI-1 part\n# IMB-MPI1 -sync off Allreduce \n"
        "# MPI_Datatype for reductions    :   MPI_DOUBLE \n" +
        imb_table(title, kImbRow + "\n"));
    CHECK(content.curves.at(0).rows[0].cadence == "back-to-back");
    CHECK(contains(remarks_of(content), "values are MPI_DOUBLE; the curve is taken for float"));
  }
  SUBCASE("bandwidths") {
    CHECK(contains(why_not(imb_table(title, kImbRow + "  7.0\n", "   Mbytes/sec")), "left out"));
  }
}

TEST_CASE("curve file: run files, unknown files, and names") {
  const TestFolder folder;
  CHECK(contains(why_not(""), "is no curve that is known"));
  CHECK(contains(why_not("size time\n8 9\n"), "and what these two, osu_allreduce and IMB-MPI1"));
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
