#include <cmath>
#include <cstring>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/output/page_parts.h"
#include "analysis/output/phase_layout.h"
#include "analysis/output/trace.h"
#include "analysis/plots/plots.h"
#include "analysis/tables/tables.h"
#include "base/hash.h"
#include "record/journal.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

// Waiting for a late rank: in files of today, in older ones, in tables, plots and the trace.

namespace {

SampleShape shape_of(int schema) {
  SampleShape shape;
  shape.schema = schema;
  return shape;
}

constexpr std::size_t kUsage_bytes = kUsages * sizeof(double);

/// A row of early versions: no usage.
IterationRow without_usage(IterationRow row) {
  for (RankIteration& rank : row.ranks)
    rank.usage.fill(kNotMeasured);
  return row;
}

/// A row as version 2 of the journal held it: no usage, no arrivals.
std::vector<std::byte> encoded_2(const IterationRow& row) {
  const auto bytes = encode(row);
  const std::size_t buckets = row.buckets.size(), rank_tail = buckets * 4 * sizeof(double);
  const std::size_t head = 4 * 8 + 8 + 3 * 4 + buckets * 12;
  const std::size_t rank_bytes = (bytes.size() - head) / row.ranks.size();
  std::vector<std::byte> shorter(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head));
  for (std::size_t at = head; at < bytes.size(); at += rank_bytes) {
    const std::byte* rank = bytes.data() + at;
    const std::byte* times = rank + rank_bytes - rank_tail;
    shorter.insert(shorter.end(), rank, times - kUsage_bytes);
    for (std::size_t b = 0; b < buckets; ++b)
      shorter.insert(shorter.end(), times + b * 4 * sizeof(double),
                     times + (b * 4 + 3) * sizeof(double));
  }
  return shorter;
}

/// A journal of version 2 with some rows.
std::filesystem::path journal_2(const TestFolder& folder) {
  const SampleShape shape = shape_of(1);
  const auto path = folder / "run.h5.journal";
  {
    JournalWriter writer(path);
    writer.append(RecordType::kInfo, encode(sample_info(shape)));
    for (std::size_t i = 0; i < 4; ++i)
      writer.append(RecordType::kIteration, encoded_2(sample_row(shape, i)));
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string header(kJournalHeaderBytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  header[8] = 2;
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(header)).first(12));
  std::memcpy(header.data() + 12, &checksum, sizeof checksum);
  file.seekp(0);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  return path;
}

bool has_column(const Table& table, const std::string& name) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const Column& column) { return column.name == name; });
}

std::vector<std::string> series_of(const Chart& chart) {
  std::vector<std::string> names;
  for (const ChartSeries& series : chart.panels.at(0).series)
    names.push_back(series.label);
  return names;
}

bool holds(const std::vector<std::string>& names, const std::string& part) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return contains(name, part); });
}

}  // namespace

TEST_CASE("wait: the arrival of the last rank is kept by journal and run file") {
  const TestFolder folder;
  write_sample(folder / "run.h5", shape_of(2));
  const auto run = open_run(folder / "run.h5");
  CHECK(run->info().schema == 2);
  const auto rows = run->rows(0, run->iterations());
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK(same(rows[i], sample_row(shape_of(2), i)));
}

TEST_CASE("wait: a journal of version 2 is read, without arrivals, and not appended to") {
  const TestFolder folder;
  const auto path = journal_2(folder);
  const auto run = open_run(path);
  CHECK(run->info().schema == 1);
  REQUIRE(run->iterations() == 4);
  CHECK(run->remarks().empty());
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(same(run->rows(i, 1)[0], without_usage(sample_row(shape_of(1), i))));
  CHECK_THROWS_WITH_AS(JournalWriter::append_to(path),
                       doctest::Contains("has version 2, this program appends to version 4"),
                       Error);
}

TEST_CASE("wait: a row's length tells its version, and no other length is read") {
  const IterationRow row = sample_row(shape_of(2), 0);
  auto old = encoded_2(row);
  const auto decoded = decode<IterationRow>(old);
  REQUIRE(decoded);
  CHECK(std::isnan(decoded->ranks[0].buckets[0].arrival_s));
  CHECK(std::isnan(decoded->ranks[0][Usage::kCpuTime]));
  CHECK(decoded->ranks[1].buckets[2].end_s == row.ranks[1].buckets[2].end_s);
  old.resize(old.size() + 8);
  CHECK_FALSE(decode<IterationRow>(old));
}

TEST_CASE("wait: a part of the iteration in tables of today's runs") {
  const TestFolder folder;
  write_sample(folder / "run.h5", shape_of(2));
  const RunSet set = loaded(folder);
  const Table split = make_split_table(set, {});
  CHECK(shown(split, 0, "wait_ms") == "1.00");
  CHECK(shown(split, 1, "wait_ms") == "0.00");
  CHECK(shown(split, 0, "other_ms") == "2.65");
  CHECK(contains(all_notes(split), "compute + exposed + wait + other = iteration, checked to 1 %"));
  const Table both = make_compute_comm_table(set, {});
  CHECK(shown(both, 0, "measured_wait_ms") == "0.50");
  CHECK(shown(both, 0, "measured_sum_percent") == "100.0");
  const Table profile = make_profile_table(set, {});
  CHECK(shown(profile, 0, "wait_percent") == "4.5");
  double sum = 0;
  for (const char* part : {"forward", "backward", "exposed", "optimizer", "data", "wait", "other"})
    sum += std::stod(shown(profile, 0, std::string(part) + "_percent"));
  CHECK(sum == doctest::Approx(100).epsilon(0.005));
  CHECK(contains(all_notes(make_stragglers_table(set, {})), "before the last rank arrived"));
}

TEST_CASE(
    "wait: a part of communication in tables and plots of older runs, and n/a in its column") {
  const TestFolder folder;
  write_sample(folder / "run.h5", shape_of(1));
  const RunSet set = loaded(folder);
  const Table split = make_split_table(set, {});
  CHECK(contains(all_notes(split), "compute + exposed + other = iteration, checked to 1 %"));
  CHECK_FALSE(contains(all_notes(split), "arrival"));
  for (std::size_t row = 0; row < split.rows.size(); ++row) {
    CHECK(shown(split, row, "wait_ms") == "n/a");
    CHECK(shown(split, row, "wait_percent") == "n/a");
  }
  CHECK(shown(make_summary_table(set, {}), 0, "wait_ms") == "n/a");
  CHECK(shown(make_compute_comm_table(set, {}), 0, "measured_wait_ms") == "n/a");
  CHECK(shown(make_compute_comm_table(set, {}), 0, "measured_sum_percent") == "100.0");
  for (const Table& table : {split, make_summary_table(set, {}), make_compute_comm_table(set, {}),
                             make_profile_table(set, {}), make_networks_table(set, {}),
                             make_utilization_table(set, {})}) {
    CAPTURE(table.name);
    CHECK(
        contains(all_notes(table), "contains waiting for late ranks: these are runs of schema 1"));
  }
  for (const Chart& chart : {*make_split_plot(set), *make_utilization_plot(set)})
    CHECK(contains(chart.caption.back(), "Communication, hidden and exposed, contains waiting"));
  CHECK(contains(key_figures(set), "; contains waiting for late ranks (schema 1)"));
  CHECK_FALSE(has_column(make_profile_table(set, {}), "wait_percent"));
  CHECK_FALSE(holds(series_of(*make_split_plot(set)), "wait"));
}

TEST_CASE("wait: old and new runs beside each other, each as it counts") {
  const TestFolder folder;
  write_sample(folder / "old.h5", shape_of(1));
  SampleShape other = shape_of(2);
  other.mode = "allreduce";
  write_sample(folder / "new.h5", other);
  const RunSet set = loaded(folder);
  for (const Table& table : {make_split_table(set, {}), make_compute_comm_table(set, {}),
                             make_stragglers_table(set, {})}) {
    CHECK(contains(all_notes(table), "runs of schema 1: "));
    CHECK(contains(all_notes(table), "runs of schema 2: "));
    CHECK_FALSE(contains(all_notes(table), "WARNING"));
  }
  const Table both = make_compute_comm_table(set, {});
  CHECK(shown(both, 0, "measured_sum_percent") == "100.0");
  CHECK(shown(both, 1, "measured_sum_percent") == "100.0");
  const Table profile = make_profile_table(set, {});
  CHECK(contains(all_notes(profile), "in 1 of 2 runs, which are of schema 1"));
  // In the order of the modes: allreduce, of schema 2, then ddp.
  CHECK(shown(profile, 0, "wait_percent") == "4.5");
  CHECK(shown(profile, 1, "wait_percent") == "n/a");
  CHECK(std::stod(shown(profile, 1, "other_percent")) > 0);
  const Chart chart = *make_split_plot(set);
  for (const ChartSeries& series : chart.panels.at(0).series)
    CHECK(series.points.size() == (contains(series.label, "straggler wait") ? 1 : 2));
}

TEST_CASE("wait: one rank waits for nobody, so nothing is said of its runs of schema 1") {
  const TestFolder folder;
  SampleShape alone = shape_of(1);
  alone.mode = "none";
  alone.ranks = 1;
  write_sample(folder / "run.h5", alone);
  CHECK(waiting_text(loaded(folder)).empty());
  CHECK(waiting_text({}).empty());
}

TEST_CASE("wait: in the plot between exposed communication and other, the bar as high as before") {
  const TestFolder folder;
  write_sample(folder / "run.h5", shape_of(2));
  const Chart chart = *make_split_plot(loaded(folder));
  double top = 0;
  for (const ChartSeries& series : chart.panels.at(0).series) {
    if (series.mark != Mark::kBar) continue;
    CHECK(series.points.at(0).low == doctest::Approx(top));
    top = series.points.at(0).high;
  }
  CHECK(top == doctest::Approx(11.15));
  CHECK(holds(series_of(chart), "straggler wait"));
}

TEST_CASE("wait: slices of their own in the trace, which cross nothing") {
  const TestFolder folder;
  write_sample(folder / "run.h5", shape_of(2));
  const RunSet set = loaded(folder);
  const auto trace = nlohmann::json::parse(trace_json(set.runs[0], {3, 3}));
  double wait_us = 0, moving_us = 0, end_us = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["pid"] != 1 || event["tid"] != 3) continue;
    if (event["name"] == "straggler wait") {
      CHECK(event["cat"] == "wait");
      wait_us += event["dur"].get<double>();
    } else {
      moving_us += event["dur"].get<double>();
      CHECK(event["ts"].get<double>() >= end_us - 1e-3);
      end_us = event["ts"].get<double>() + event["dur"].get<double>();
    }
  }
  CHECK(wait_us == doctest::Approx(1000));
  CHECK(moving_us == doctest::Approx(900));
}

TEST_CASE("wait: beside compute no phase goes around a collective") {
  RankIteration rank;
  rank[Phase::kIteration] = 10;
  rank[Phase::kForward] = 3;
  rank[Phase::kBackward] = 5;
  rank[Phase::kHidden] = 0;
  rank[Phase::kExposed] = 1;
  rank[Phase::kWait] = 0;
  rank.buckets = {{4, 4, 9, 8}};  // waits beside the backward pass, data moves after it
  auto phases = place_phases(rank);
  REQUIRE(phases.size() == 2);
  CHECK(phases[1].pieces.size() == 1);
  rank[Phase::kBackward] = 1;  // and here it stands still until 8
  rank[Phase::kWait] = 4;
  phases = place_phases(rank);
  REQUIRE(phases.size() == 2);
  CHECK(phases[1].pieces.front().end_s == doctest::Approx(4));
}

namespace {

/// Three ranks, one collective an iteration; `start_s` and `begin_s` have one value a rank.
void write_arrivals(const std::filesystem::path& path, const std::vector<double>& begin_s,
                    const std::vector<double>& start_s, std::size_t iterations) {
  const SampleShape shape{"allreduce", start_s.size(), iterations, 100, 32, 0};
  Recorder recorder(path, sample_info(shape));
  for (std::size_t i = 0; i < iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    row.buckets = {{4096, CollectiveKind::kAllReduce}};
    for (std::size_t r = 0; r < start_s.size(); ++r) {
      row.ranks[r].begin_s = begin_s[r] + static_cast<double>(i);
      row.ranks[r].buckets = {{0, start_s[r], 0.5}};
      row.ranks[r][Phase::kWait] = 0.001 * static_cast<double>(r);
    }
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

Stragglers of(const std::filesystem::path& path) {
  const auto run = open_run(path);
  return stragglers(*run, steady_rows(*run));
}

}  // namespace

TEST_CASE("stragglers: who came last is charged with what the others waited, by hand") {
  const TestFolder folder;
  // Arrivals 10, 13, 12 ms: rank 1 is last and costs 3 + 1 ms. Its start alone is the earliest.
  write_arrivals(folder / "run.h5", {0.005, 0.009, 0.006}, {0.005, 0.004, 0.006}, 4);
  const Stragglers all = of(folder / "run.h5");
  CHECK(all.iterations == 3);
  CHECK(all.collectives == 3);
  CHECK(all.ranks[1].caused_s == Approx(0.004));
  CHECK(all.ranks[0].caused_s == 0);
  CHECK(all.ranks[2].caused_s == 0);
  CHECK(all.ranks[1].caused_percent == Approx(100));
  CHECK(all.ranks[1].last_percent == Approx(100));
  CHECK(all.ranks[2].last_percent == 0);
  CHECK(all.ranks[2].suffered_s == Approx(0.002));
  CHECK(all.ranks[0].suffered_s == 0);
  CHECK(all.undecided_percent == 0);
}

TEST_CASE("stragglers: arrivals nearer than the clocks tell are counted as undecided") {
  const TestFolder folder;
  write_arrivals(folder / "run.h5", {0, 0, 0}, {0.001, 0.0100001, 0.01}, 4);
  CHECK(of(folder / "run.h5").undecided_percent == Approx(100));  // 0.1 µs, clocks to 0.2 µs each
}

TEST_CASE("stragglers: ranks that were not measured, one rank, one iteration, no collective") {
  const TestFolder folder;
  write_arrivals(folder / "hole.h5", {0, 0, 0}, {0.010, kNan, 0.012}, 3);
  CHECK(of(folder / "hole.h5").ranks[2].caused_s == Approx(0.002));
  CHECK(of(folder / "hole.h5").ranks[1].caused_s == 0);
  write_arrivals(folder / "nothing.h5", {0, 0, 0}, {kNan, kNan, 0.012}, 3);
  CHECK(of(folder / "nothing.h5").collectives == 0);
  CHECK(std::isnan(of(folder / "nothing.h5").ranks[2].caused_s));
  write_arrivals(folder / "alone.h5", {0}, {0.010}, 3);
  CHECK(std::isnan(of(folder / "alone.h5").ranks[0].caused_s));
  write_arrivals(folder / "one.h5", {0, 0}, {0.010, 0.011}, 1);
  CHECK(std::isnan(of(folder / "one.h5").ranks[1].caused_s));
  CHECK(std::isnan(of(folder / "one.h5").ranks[1].suffered_s));
  write_arrivals(folder / "none.h5", {0, 0}, {0.010, 0.011}, 0);
  CHECK(std::isnan(of(folder / "none.h5").ranks[1].caused_s));
}

TEST_CASE("stragglers and traffic: a journal says the same as its file") {
  const TestFolder folder;
  const SampleShape shape{"ddp", 3, 40, 100, 32, 2};
  write_sample(folder / "run.h5", shape);
  {
    Recorder recorder(folder / "killed.h5", sample_info(shape));
    record_sample(recorder, shape);
    recorder.sync();
  }
  const auto file = open_run(folder / "run.h5");
  const auto journal = open_run(folder / "killed.h5.journal");
  const SteadyRows steady = steady_rows(*file);
  CHECK(steady_rows(*journal).first == steady.first);
  const Stragglers a = stragglers(*file, steady), b = stragglers(*journal, steady);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(a.ranks[rank].caused_s == b.ranks[rank].caused_s);
    CHECK(a.ranks[rank].last_percent == b.ranks[rank].last_percent);
    CHECK(traffic_figures(*file, steady)[rank].bytes ==
          traffic_figures(*journal, steady)[rank].bytes);
  }
  // Two collectives an iteration; all ranks start alike, so the begin (10 µs apart) decides.
  CHECK(a.collectives == 76);
  CHECK(a.ranks[2].last_percent == Approx(100));
  CHECK(a.ranks[2].caused_s == Approx(2 * 30e-6));
}

TEST_CASE("traffic: mean of the steady iterations by category, and the sum over ranks") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const auto run = open_run(folder / "run.h5");
  const auto ranks = traffic_figures(*run, steady_rows(*run));
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].iterations == 10);
  CHECK(ranks[0].bytes == std::array<double, kRowCategories>{1000, 0, 8, 0, 24, 64});
  CHECK(ranks[1].total() == 1097);
  CHECK(sum_of(ranks).total() == 1096 + 1097);
  write_sample(folder / "one.h5", {"none", 1, 1, 5, 32, 0});
  const auto one = open_run(folder / "one.h5");
  CHECK(std::isnan(traffic_figures(*one, steady_rows(*one))[0].total()));
}
