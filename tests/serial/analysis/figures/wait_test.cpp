// SPDX-License-Identifier: BSD-3-Clause
// Waiting for a late rank: in files of today, in older ones, in tables, plots and the trace.
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "analysis/figures/rank_figures.h"
#include "analysis/output/page.h"
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

/// A row as version 2 of the journal held it: no round, no usage, no arrivals.
std::vector<std::byte> encoded_2(const IterationRow& row) {
  const auto bytes = encode(row);
  const std::size_t buckets = row.buckets.size(), rank_tail = buckets * 4 * sizeof(double);
  const std::size_t round = 4 * 8 + 8 + 4, head = round + 8 + 2 * 4 + buckets * 12;
  const std::size_t rank_bytes = (bytes.size() - head) / row.ranks.size();
  std::vector<std::byte> shorter(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head));
  const auto begin = shorter.begin() + static_cast<std::ptrdiff_t>(round);
  shorter.erase(begin, begin + 8);
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
                       doctest::Contains("has version 2, this program appends to version 6"),
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
  const RunFolder folder;
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
  const RunFolder folder;
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
  for (const Chart& chart : {*make_split_plot(set), *make_utilization_plot({set, {}, {}})})
    CHECK(contains(chart.caption.back(), "Communication, hidden and exposed, contains waiting"));
  CHECK(contains(key_figures(set), "; contains waiting for late ranks (schema 1)"));
  CHECK_FALSE(has_column(make_profile_table(set, {}), "wait_percent"));
  CHECK_FALSE(holds(series_of(*make_split_plot(set)), "wait"));
}

TEST_CASE("wait: old and new runs beside each other, each as it counts") {
  const RunFolder folder;
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
  const RunFolder folder;
  SampleShape alone = shape_of(1);
  alone.mode = "none";
  alone.ranks = 1;
  write_sample(folder / "run.h5", alone);
  CHECK(waiting_text(loaded(folder)).empty());
  CHECK(waiting_text({}).empty());
}

TEST_CASE("wait: in the plot between exposed communication and other, the bar as high as before") {
  const RunFolder folder;
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
  const RunFolder folder;
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
