#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "collectives/options.h"
#include "collectives/printer.h"
#include "record/calibration_curve.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "support/memory.h"
#include "support/options.h"

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
  CHECK_THROWS_AS(size_range(4, std::int64_t{1} << 31, 2, 0), Error);
  CHECK_THROWS_AS(size_range(4, 1 << 30, 2, 4), Error);  // 268 million sizes
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
  CHECK(longer.operations[1]->transport == "ring");
  CHECK(longer.cadences.size() == 1);
  CHECK(read({"-b", "1M", "-e", "3M", "-i", "1M"}).sizes.size() == 3);
  CHECK(contains(help_text(calibrate_help(), calibrate_option_table()), "-b, --minbytes SIZE"));
}

TEST_CASE("calibrate: what does not apply is reported") {
  const CleanEnvironment clean;
  CHECK(contains(refusal({"-d", "half"}), "float32"));
  CHECK(contains(refusal({"-o", "max"}), "summed"));
  CHECK(contains(refusal({"-g", "4"}), "one device"));
  CHECK(contains(refusal({"-t", "2"}), "one thread"));
  CHECK(contains(refusal({"-z", "1"}), "-z is not an option"));
  CHECK(contains(refusal({"-b", "-e", "8"}), "--minbytes needs a value"));
  CHECK(contains(refusal({"--json", "-h"}), "--json needs a value"));
  CHECK(contains(refusal({"-b", "1M", "-i", "1M", "-f", "2"}), "factor"));
  CHECK(contains(refusal({"--collective", "allreduc"}), "did you mean allreduce"));
  CHECK(contains(refusal({"-n", "0"}), "--iters"));
  CHECK(contains(refusal({"-n", "3", "--iters", "4"}), "twice"));
  CHECK(contains(refusal({"-e", "2GiB"}), "maxbytes"));
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

TEST_CASE("calibrate: bucket sizes of a run are those of its last iteration, each once") {
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
}

TEST_CASE("calibrate: data is what the operations say, and one changed value is found") {
  std::vector<float> data(200);
  fill_pattern(data, 60, 2);
  CHECK(data[0] == 122);
  CHECK(data[1] == 2);
  CHECK(std::count(data.begin(), data.end(), 0.0f) == 0);
  CHECK(count_wrong(data, 60, 2) == 0);
  CHECK(count_wrong(data, 59, 2) == 200);
  data[137] = std::nanf("");
  data[5] += 1;
  CHECK(count_wrong(data, 60, 2) == 2);
  CHECK(total_weight(1) == 1);
  CHECK(total_weight(3) == 6);
  double sum = 0;
  for (int rank = 0; rank < 40; ++rank)
    sum += weight(rank);
  CHECK(total_weight(40) == sum);
  // The root of a gather holds all ranks' data beside its own; the library may hold as much again.
  CHECK(operation_memory_bytes(CollectiveKind::kGather, 100, 0, 4) == 600);
  CHECK(operation_memory_bytes(CollectiveKind::kGather, 100, 1, 4) == 200);
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
  CHECK(words(calibration_line(find_operation("allreduce"), row, 2)) ==
        std::vector<std::string>{"1048576", "262144", "float", "sum", "-1", "100.00", "10.486",
                                 "10.486", "0"});
  CHECK(words(calibration_line(find_operation("allreduce"), row, 1))[7] == "n/a");
  auto gathered = row_of(CollectiveKind::kGather, 1 << 20, 1e-4);
  gathered.wrong = -1;
  CHECK(words(calibration_line(find_operation("gather"), gathered, 4)) ==
        std::vector<std::string>{"4194304", "262144", "float", "none", "0", "100.00", "41.943",
                                 "31.457", "N/A"});
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
  const auto page =
      nlohmann::json::parse(calibration_json(calibration_curves({row}, 2), places, "a \"b\""));
  const auto& curve = page["curves"][0];
  CHECK(page["ranks"].size() == 2);
  CHECK(curve["results"][0]["in_place"]["bus_bw"].get<double>() == doctest::Approx(10.48576));
  CHECK(curve["results"][0]["in_place"]["time"].get<double>() == doctest::Approx(100));
  CHECK(curve["results"][0]["in_place"]["mean_us"].is_null());
  CHECK(curve["alpha_us"].is_null());
  CHECK(curve["out_of_bounds"] == 0);
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
