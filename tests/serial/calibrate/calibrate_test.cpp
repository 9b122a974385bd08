// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/cli/options.h"
#include "base/memory.h"
#include "calibrate/calibrate_options.h"
#include "calibrate/printer.h"
#include "record/row_figures.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/option_sandbox.h"
#include "serial/sample_run.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::calibrate;
using namespace gradsync::testing;

namespace {

using Sizes = std::vector<std::int64_t>;

CalibrateOptions read(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gradsync-calibrate");
  const auto parsed = resolve_options(calibrate_option_table(), static_cast<int>(arguments.size()),
                                      arguments.data());
  return calibrate_options(parsed.values);
}

std::string refusal(std::vector<const char*> arguments) {
  return error_text(ExitCode::kUsage, [&] { read(std::move(arguments)); });
}

CalibrationRow row_of(CollectiveKind kind, std::int64_t bytes, double median_s) {
  CalibrationRow row;
  row.kind = kind;
  row.transport = "mpi";
  row.cadence = "isolated";
  row.bytes = bytes;
  row.repetitions = 20;
  row.median_s = median_s;
  row.wrong = 0;
  return row;
}

}  // namespace

TEST_CASE("calibrate: sizes by factor and by step, in whole values") {
  CHECK(size_range(8, 64, 2, 0) == Sizes{8, 16, 32, 64});
  CHECK(size_range(8, 63, 2, 0) == Sizes{8, 16, 32});
  CHECK(size_range(100, 100, 2, 0) == Sizes{100});
  CHECK(size_range(1, 9, 2, 0) == Sizes{4, 8});  // 1, 2 and 4 are one value, 8 is two
  CHECK(size_range(1000, 4000, 2, 1000) == Sizes{1000, 2000, 3000, 4000});
  CHECK(parse_size_sweep("1KiB:4KiB") == Sizes{1024, 2048, 4096});
  for (const auto& [first, last, factor] : {std::tuple{64, 8, 2.0}, {0, 8, 2.0}, {8, 64, 1.0}})
    CHECK_THROWS_AS(size_range(first, last, factor, 0), Error);
  CHECK(size_range(4, std::int64_t{1} << 33, 2, 0).back() == std::int64_t{1} << 33);
  CHECK_THROWS_AS(size_range(4, std::int64_t{1} << 41, 2, 0), Error);
  CHECK_THROWS_AS(size_range(4, 1 << 30, 2, 4), Error);  // 268 million sizes
  CHECK(size_range(8, 20, 1.000000000001, 0) == Sizes{8, 12, 16, 20});
  CHECK_THROWS_AS(size_range(4, 1 << 30, 1.000000000001, 0), Error);
  CHECK_THROWS_AS(parse_size_sweep("1KiB"), Error);
}

TEST_CASE("calibrate: letters of nccl-tests, apart or attached, and their long names") {
  const CleanEnvironment clean;
  const auto options = read({"-b", "8", "-e1K", "-f", "4", "-n", "7", "-w", "3", "-c", "0", "-d",
                             "float", "-o", "sum", "-J", "out.json", "-g", "1"});
  CHECK(options.sizes == Sizes{8, 32, 128, 512});
  CHECK(options.counts.timed == 7);
  CHECK(options.counts.warmup == 3);
  CHECK(options.counts.checked == 0);
  CHECK(options.json == "out.json");
  CHECK(options.operations.size() == operations().size());
  CHECK(options.cadences == kCadences);
  const auto longer = read({"--minbytes", "8", "--maxbytes", "1M", "--stepfactor", "4", "--iters",
                            "7", "--collective", "reduce,allreduce-ring", "--cadence", "isolated"});
  CHECK(longer.sizes.back() == 8 * 65536);
  CHECK(longer.operations.size() == 2);
  CHECK(longer.operations[1]->transport == kMpiRing);
  CHECK(longer.cadences.size() == 1);
  CHECK(read({"-b", "1M", "-e", "3M", "-i", "1M"}).sizes.size() == 3);
  CHECK(contains(help_text(calibrate_help(), calibrate_option_table()), "-b, --minbytes SIZE"));
}

TEST_CASE("calibrate: what does not apply is reported") {
  const CleanEnvironment clean;
  CHECK(contains(refusal({"-d", "halve"}), "did you mean half"));
  CHECK(contains(refusal({"-a", "4"}), "slowest rank"));
  CHECK(contains(refusal({"-N", "0"}), "--run-cycles"));
  CHECK(contains(refusal({"-G", "1"}), "one by one"));
  CHECK(contains(refusal({"--unmeasured", "0"}), "repeat"));
  CHECK(contains(refusal({"-o", "max"}), "summed"));
  CHECK(contains(refusal({"-g", "4"}), "one device"));
  CHECK(contains(refusal({"-t", "2"}), "one thread"));
  CHECK(contains(refusal({"-z", "1"}), "-z is not an option"));
  CHECK(contains(refusal({"-b", "1M", "-i", "1M", "-f", "2"}), "factor"));
  CHECK(contains(refusal({"--collective", "allreduc"}), "did you mean allreduce"));
  CHECK(contains(refusal({"-n", "0"}), "--iters"));
  CHECK(contains(refusal({"-n", "3", "--iters", "4"}), "twice"));
  CHECK(contains(refusal({"-e", "2TiB"}), "maxbytes"));
}

TEST_CASE("calibrate: programs without letters still refuse them") {
  const CleanEnvironment clean;
  const OptionTable table = {{"batch", "N", "1", "", ""}};
  const std::vector<const char*> arguments = {"program", "-b", "8"};
  CHECK(contains(error_text(ExitCode::kUsage, [&] { resolve_options(table, 3, arguments.data()); }),
                 "-b"));
}

TEST_CASE("calibrate: cells go operation by operation, cadence by cadence, with buckets marked") {
  const std::vector<BucketShape> buckets = {{16, CollectiveKind::kAllReduce},
                                            {1002, CollectiveKind::kAllReduce},
                                            {50, CollectiveKind::kReduce}};
  const auto cells = plan_cells({&find_operation("allreduce"), &find_operation("gather")},
                                kCadences, {8, 16}, buckets);
  REQUIRE(cells.size() == 2 * 3 + 2 * 2);
  CHECK(cells[0].size.bytes == 8);
  CHECK_FALSE(cells[0].size.of_bucket);
  CHECK(cells[1].size.of_bucket);  // 16 is both
  CHECK(cells[2].size.bytes == 1004);
  CHECK(cells[3].cadence == "back-to-back");
  CHECK(cells[6].operation->name == "gather");
  CHECK(distinct({buckets[1], buckets[0], buckets[1]}).size() == 2);
}

TEST_CASE("calibrate: bucket sizes of a run are those of its last iteration with any, each once") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const auto run = open_run(folder / "run.h5");
  const auto shapes = bucket_shapes(*run, "run.h5");
  REQUIRE(shapes.size() == 2);  // the first iteration has a barrier besides
  CHECK(shapes[0].bytes == 4096);
  CHECK(shapes[1].kind == CollectiveKind::kBroadcast);
  write_sample(folder / "empty.h5", {"none", 1, 0, 5, 32, 2});
  const auto empty = open_run(folder / "empty.h5");
  CHECK_THROWS_AS(bucket_shapes(*empty, "empty.h5"), Error);
  // With local steps few iterations have collectives.
  MadeRun local(sample_info({}));
  IterationRow alone = sample_row({}, 1);
  alone.buckets.clear();
  for (RankIteration& rank : alone.ranks)
    rank.buckets.clear();
  for (const IterationRow& each : {sample_row({}, 0), alone})
    local.add(each);
  CHECK_FALSE(bucket_shapes(local, "local.h5").empty());
  MadeRun absurd(sample_info({}));
  IterationRow row = sample_row({}, 0);
  row.buckets[0].bytes = std::numeric_limits<std::int64_t>::max();
  absurd.add(row);
  CHECK(contains(error_text(ExitCode::kBadData, [&] { bucket_shapes(absurd, "absurd.h5"); }),
                 "a collective of 9223372036854775807 bytes"));
}

TEST_CASE("calibrate: data is what the operations say, and one changed value is found") {
  std::vector<float> data(200);
  const auto bytes = std::as_writable_bytes(std::span(data));
  const auto wrong = [&](std::size_t first) {
    return count_wrong(bytes, ValueType::kFloat32, first, 2);
  };
  fill_pattern(bytes, ValueType::kFloat32, 60, 2);
  CHECK(data[0] == 122);
  CHECK(data[1] == 2);
  CHECK(std::count(data.begin(), data.end(), 0.0f) == 0);
  CHECK(wrong(60) == 0);
  CHECK(wrong(59) == 200);
  data[137] = std::nanf("");
  data[5] += 1;
  CHECK(wrong(60) == 2);
  CHECK(total_weight(1) == 1);
  CHECK(total_weight(3) == 6);
  double sum = 0;
  for (int rank = 0; rank < 40; ++rank)
    sum += weight(rank);
  CHECK(total_weight(40) == sum);
  // The root of a gather holds all ranks' data beside its own; the library may hold as much again.
  CHECK(operation_memory_bytes(CollectiveKind::kGather, 100, 0, 4) == 600);
  CHECK(operation_memory_bytes(CollectiveKind::kGather, 100, 1, 4) == 200);
  CHECK(operation_memory_bytes(CollectiveKind::kAllGather, 100, 1, 4) == 600);
  CHECK(operation_memory_bytes(CollectiveKind::kAllToAll, 100, 1, 4) == 900);
  CHECK(operation_memory_bytes(CollectiveKind::kSendReceive, 100, 1, 4) == 300);
}

TEST_CASE("calibrate: data of every type, where a changed bit of any value is found") {
  for (const DataType& one : kDataTypes) {
    INFO(one.name);
    const auto size = static_cast<std::size_t>(value_bytes(one.type));
    std::vector<std::byte> data(200 * size);
    const double factor = 2;
    fill_pattern(data, one.type, 3, factor);
    CHECK(count_wrong(data, one.type, 3, factor) == 0);
    CHECK(count_wrong(data, one.type, 4, factor) == 200);
    for (std::size_t value = 0; value < 200; ++value)
      data[value * size] ^= std::byte{1};
    CHECK(count_wrong(data, one.type, 3, factor) == 200);
    CHECK(find_data_type(std::string(one.name)) == one.type);
  }
  // Sums of 4 ranks are exact in every type; of 64 they round in 16 bits.
  for (const DataType& one : kDataTypes)
    CHECK(sum_tolerance(4, one.type) == 0);
  CHECK(sum_tolerance(64, ValueType::kBfloat16) == doctest::Approx(0.25));
  CHECK(sum_tolerance(64, ValueType::kFloat16) == doctest::Approx(1.0 / 32));
  CHECK(sum_tolerance(64, ValueType::kInt32) == 0);
}

TEST_CASE("calibrate: sizes are whole values of the type, and one table is of one type") {
  const auto cells = plan_cells({&find_operation("allgather")}, {"isolated"}, {4, 8, 12}, {},
                                {ValueType::kFloat64, ValueType::kInt8});
  REQUIRE(cells.size() == 5);  // 4 and 8 are one double, 12 is two
  CHECK(cells[0].size.bytes == 8);
  CHECK(cells[1].size.bytes == 16);
  CHECK(cells[2].size.bytes == 4);
  CHECK(same_section(cells[0], cells[1]));
  CHECK_FALSE(same_section(cells[1], cells[2]));
}

TEST_CASE("calibrate: busbw of the kinds between all ranks, as nccl-tests defines it") {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll}) {
    CHECK(message_bytes(kind, 1000, 4) == 4000);
    CHECK(busbw(kind, 1000, 4, 1e-6) == doctest::Approx(3e9));
  }
  CHECK(busbw(CollectiveKind::kSendReceive, 1000, 4, 1e-6) == doctest::Approx(1e9));
}

TEST_CASE("calibrate: cycles of a size are one point, the middle one") {
  std::vector<CalibrationRow> rows;
  for (const double median_s : {3e-6, 1e-6, 2e-6})
    rows.push_back(row_of(CollectiveKind::kAllReduce, 1000, median_s));
  rows[1].wrong = 2;
  rows[2].maximum_s = 9e-6;
  rows[0].maximum_s = rows[1].maximum_s = 4e-6;
  const auto curve = calibration_curves(rows, 2).at(0);
  REQUIRE(curve.rows.size() == 1);
  CHECK(curve.times_s[0] == 2e-6);
  CHECK(curve.rows[0].repetitions == 60);
  CHECK(curve.rows[0].maximum_s == 9e-6);
  CHECK(curve.wrong == 2);
  rows[2].type = "half";
  CHECK(calibration_curves(rows, 2).size() == 2);
  CHECK(calibration_curves(rows, 2)[1].name() == "allreduce, mpi, isolated, half");
}

TEST_CASE("calibrate: expectations from rules or a file, met and not met") {
  const CleanEnvironment clean;
  const TestFolder folder;
  const auto rules = read({"--expect", "busbw>=5@1M,gather:busbw>=2.5@4KiB"}).expected;
  REQUIRE(rules.size() == 2);
  CHECK(rules[0].collective.empty());
  CHECK(rules[0].busbw == 5e9);
  CHECK(rules[0].bytes == 1 << 20);
  CHECK(rules[1].collective == "gather");
  write_file_atomically(folder / "rules",
                        "# of the last acceptance\nallreduce : busbw >= 11 @ 1M  # rail 0\n\n");
  const auto of_file = read({"--expect", (folder / "rules").c_str()}).expected;
  REQUIRE(of_file.size() == 1);
  CHECK(of_file[0].busbw == 11e9);
  // 1 MiB in 100 µs on 2 ranks: 10.486 GB/s.
  const auto curves = calibration_curves({row_of(CollectiveKind::kAllReduce, 1 << 20, 1e-4)}, 2);
  const auto met = judge(rules, curves);
  REQUIRE(met.size() == 2);
  CHECK(met[0].met);
  CHECK_FALSE(met[1].met);
  CHECK(contains(met[1].text, "not measured"));
  CHECK_FALSE(judge(of_file, curves)[0].met);
  CHECK(contains(expectation_footer({met[0]}), "10.486 GB/s of 5 OK\n# Expected bandwidth   : OK"));
  CHECK(contains(expectation_footer(met), "# Expected bandwidth   : FAILED"));
  CHECK(expectation_footer({}).empty());
  for (const char* wrong :
       {"busbw>=5", "busbw>=x@1M", "allreduce busbw>=5@1M", "al:busbw>=5@1M", "busbw>=0@1M"})
    CHECK(contains(refusal({"--expect", wrong}), "--expect"));
  for (const char* misspelt : {"busbw>20@1G", "allreduce:busbw=20@1G"})
    CHECK(contains(refusal({"--expect", misspelt}), "not [COLLECTIVE:]busbw>=GB/S@SIZE"));
  CHECK(contains(error_text(ExitCode::kNoInput,
                            [] {
                              read({"--expect", "/nonexistent/rules"});
                            }),
                 "--expect: cannot open '/nonexistent/rules'"));
}

TEST_CASE("calibrate: the size of an expectation is rounded as those of the sweep are") {
  const auto met = [](const char* rule, std::int64_t bytes, const char* type) {
    CalibrationRow row = row_of(CollectiveKind::kAllReduce, bytes, 1e-9);
    row.type = type;
    return judge(read({"--expect", rule}).expected, calibration_curves({row}, 2)).at(0).met;
  };
  const CleanEnvironment clean;
  CHECK(met("busbw>=1@10", 12, "float"));
  CHECK(met("busbw>=1@10", 16, "double"));
  CHECK(met("busbw>=1@10", 12, "int8"));
  CHECK_FALSE(met("busbw>=1@13", 12, "float"));
}

TEST_CASE("calibrate: a factor or a step, whichever comes from the stronger source") {
  const Sandbox sandbox;
  const Variable step("GRADSYNC_CALIBRATE_STEPBYTES", "8");
  const std::vector<const char*> ends = {"-b", "8", "-e", "32"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.end(), ends.begin(), ends.end());
    return read(more);
  };
  CHECK(with({}).sizes == Sizes{8, 16, 24, 32});
  CHECK(with({"-f", "2"}).sizes == Sizes{8, 16, 32});
  CHECK(with({"-f", "2"}).sweep.step_bytes == 0);
  CHECK(contains(refusal({"-f", "2", "-i", "8"}), "a step together with a factor"));
  const Variable factor("GRADSYNC_CALIBRATE_STEPFACTOR", "2");
  CHECK(contains(refusal({"-b", "8"}), "a step together with a factor"));
  CHECK(with({"-i", "12"}).sizes == Sizes{8, 20, 32});
  const std::string job = sandbox.file("job.cfg", "stepbytes = 4\n");
  const Variable none("GRADSYNC_CALIBRATE_STEPBYTES", "");
  CHECK(with({"--config", job.c_str()}).sizes == Sizes{8, 16, 32});
}

TEST_CASE("calibrate: curves by collective, with nccl-tests' bandwidths") {
  // 4 ranks: busbw = 1.5 S/t for all-reduce; 4 GB/s of algbw at the three largest sizes.
  std::vector<CalibrationRow> rows;
  for (const std::int64_t bytes : {4000, 1000, 2000})
    rows.push_back(row_of(CollectiveKind::kAllReduce, bytes, static_cast<double>(bytes) / 4e9));
  rows.push_back(row_of(CollectiveKind::kGather, 1000, 1e-6));
  rows[3].wrong = 5;
  const auto curves = calibration_curves(rows, 4);
  REQUIRE(curves.size() == 2);
  CHECK(curves[0].bytes == std::vector<double>{1000, 2000, 4000});
  CHECK(curves[0].average_busbw == doctest::Approx(6e9));
  CHECK(curves[0].plateau_busbw == doctest::Approx(6e9));
  CHECK(curves[0].fit.beta_s_per_byte == doctest::Approx(0.25e-9));
  CHECK(curves[0].wrong == 0);
  // Gather: 4 · 1000 B in 1 µs is 4 GB/s, times 3/4.
  CHECK(curves[1].busbw[0] == doctest::Approx(3e9));
  CHECK(curves[1].wrong == 5);
  CHECK(curves[1].name() == "gather, mpi, isolated");
  CHECK(std::isnan(calibration_curves(rows, 1)[0].plateau_busbw));
  rows[3].wrong = -1;
  CHECK(calibration_curves(rows, 4)[1].wrong == -1);
}

TEST_CASE("calibrate: lines as nccl-tests prints them") {
  const auto words = [](const std::string& line) {
    std::vector<std::string> all;
    for (const auto& word : split_list(line.substr(0, line.size() - 1), ' '))
      if (!word.empty()) all.push_back(word);
    return all;
  };
  // 1 MiB in 100 µs on 2 ranks: algbw 10.486 GB/s, busbw the same.
  const auto row = row_of(CollectiveKind::kAllReduce, 1 << 20, 1e-4);
  const std::vector<std::string> none(4, "N/A");
  const auto joined = [](std::vector<std::string> first, const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  const std::vector<std::string> head = {"1048576", "262144", "float", "sum", "-1"};
  const std::vector<std::string> group = {"100.00", "10.486", "10.486", "0"};
  const OperationEntry& allreduce = find_operation("allreduce");
  CHECK(words(calibration_line(allreduce, row, 2)) == joined(joined(head, none), group));
  CHECK(words(calibration_line(allreduce, row, 2, {.repeated = true})) ==
        joined(joined(head, group), group));
  CHECK(words(calibration_line(allreduce, row, 1))[11] == "N/A");
  const auto timed = words(calibration_line(allreduce, row, 2, {1, 1}, "2026-01-02 03:04:05"));
  CHECK(timed.size() == 5 + 2 * 8 + 2);
  CHECK(timed.back() == "03:04:05");
  auto gathered = row_of(CollectiveKind::kGather, 1 << 20, 1e-4);
  gathered.wrong = -1;
  CHECK(words(calibration_line(find_operation("gather"), gathered, 4)) ==
        joined({"4194304", "262144", "float", "none", "0", "100.00", "41.943", "31.457", "N/A"},
               none));
  const auto footer = calibration_footer(calibration_curves({row}, 2)[0]);
  CHECK(contains(footer, "# Out of bounds values : 0 OK\n"));
  CHECK(contains(footer, "# Avg bus bandwidth    : 10.485760\n"));
  CHECK(contains(footer, "needs two sizes"));
  auto failed = row;
  failed.wrong = 3;
  CHECK(contains(calibration_footer(calibration_curves({failed}, 2)[0]), ": 3 FAILED"));
  for (const std::string& line : split_list(footer, '\n'))
    CHECK((line.empty() || line[0] == '#'));
}

TEST_CASE("calibrate: JSON has every number, null where there is none") {
  const auto row = row_of(CollectiveKind::kAllReduce, 1 << 20, 1e-4);
  const auto places = sample_info({}).topology;
  const CleanEnvironment clean;
  const auto options = read({});
  const JsonFrame frame{places, "a \"b\"", "", "", options};
  const auto page = nlohmann::json::parse(calibration_json(calibration_curves({row}, 2), frame));
  const auto& curve = page["curves"][0];
  CHECK(page["ranks"].size() == 2);
  CHECK(curve["results"][0]["in_place"]["bus_bw"].get<double>() == doctest::Approx(10.48576));
  CHECK(curve["results"][0]["in_place"]["time"].get<double>() == doctest::Approx(100));
  CHECK(curve["results"][0]["in_place_per_iter"]["avg_us"].is_null());
  CHECK(curve["alpha_us"].is_null());
  CHECK(curve["out_of_bounds"] == 0);
  // nccl-tests' layout, of one table only.
  CHECK(page["version"] == 3);
  CHECK(page["results"][0]["out_of_place"].is_null());
  CHECK(page["results"][0]["redop"] == "sum");
  CHECK(page["out_of_bounds"]["okay"] == "true");
  auto unchecked = row;
  unchecked.wrong = -1;
  const auto not_known =
      nlohmann::json::parse(calibration_json(calibration_curves({unchecked}, 2), frame));
  CHECK(not_known["out_of_bounds"]["okay"] == "unchecked");
  CHECK(not_known["out_of_bounds"]["count"].is_null());
  CHECK(page["average_bus_bandwidth"]["bandwidth"].get<double>() == doctest::Approx(10.48576));
  CHECK(page["average_bus_bandwidth"]["okay"] == "unchecked");
  CHECK(page["config"]["devices"].size() == 2);
  const auto gather = row_of(CollectiveKind::kGather, 1 << 20, 1e-4);
  const auto curves = calibration_curves({row, gather}, 2);
  CHECK_FALSE(nlohmann::json::parse(calibration_json(curves, frame)).contains("results"));
  CHECK(json_path("a/out.json", curves[1]) == "a/out-gather-mpi-isolated.json");
}

TEST_CASE("memory of this process and of the host") {
  const auto before = peak_resident_bytes();
  REQUIRE(before.has_value());
  {
    const std::vector<char> block(64 << 20, 'x');
    CHECK(*peak_resident_bytes() >= *before);
    CHECK(*peak_resident_bytes() >= 64 << 20);
    CHECK(block[12345] == 'x');
  }
  const auto peak = *peak_resident_bytes();
  if (reset_peak_resident()) CHECK(*peak_resident_bytes() <= peak - (60 << 20));
  CHECK(available_memory_bytes().value_or(0) > 0);
}
