// nccl-tests (github.com/NVIDIA/nccl-tests): what all_reduce_perf and its like print, and their
// JSON (-J), which gradsync-calibrate writes as well.

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "analysis/curves/curve_format.h"
#include "collectives/operation.h"
#include "record/collective_call.h"
#include "support/error.h"
#include "support/json_number.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;
using calibrate::in_place;
using nlohmann::json;

constexpr const char* kBackToBack = "back-to-back";
constexpr const char* kIsolated = "isolated";
constexpr double kMicrosecond = 1e-6;

const ToolNames kPrograms = {{"all_reduce_perf", CollectiveKind::kAllReduce},
                             {"broadcast_perf", CollectiveKind::kBroadcast},
                             {"reduce_perf", CollectiveKind::kReduce},
                             {"gather_perf", CollectiveKind::kGather},
                             {"scatter_perf", CollectiveKind::kScatter},
                             {"all_gather_perf", CollectiveKind::kAllGather},
                             {"reduce_scatter_perf", CollectiveKind::kReduceScatter},
                             {"alltoall_perf", CollectiveKind::kAllToAll},
                             {"sendrecv_perf", CollectiveKind::kSendReceive}};

/// A line of results before its collective and ranks are known.
struct Result {
  double size = 0;  ///< nccl-tests' (message_bytes)
  std::string type, redop;
  bool rooted = false;
  double busbw_per_algbw = kNotMeasured;
  std::int64_t repetitions = 0;
  CalibrationRow in_place_row, out_of_place_row;  ///< time and wrong values; NaN: not measured
};

/// What all rows of a table have in common.
struct Measured {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int64_t ranks = 0;
  std::string transport = "nccl", cadence = kBackToBack;
};

CalibrationRow row_of(const Result& result, const Measured& table) {
  const bool here = in_place(table.kind);
  const CalibrationRow& usual = here ? result.in_place_row : result.out_of_place_row;
  const CalibrationRow& other = here ? result.out_of_place_row : result.in_place_row;
  CalibrationRow row = std::isnan(usual.median_s) ? other : usual;
  row.kind = table.kind;
  row.transport = table.transport;
  row.cadence = table.cadence;
  row.type = result.type;
  row.bytes =
      std::llround(result.size / message_bytes(table.kind, 1, static_cast<double>(table.ranks)));
  row.repetitions = result.repetitions;
  return row;
}

/// Where the output names no collective, as before June 2025: those that have these columns.
std::vector<CollectiveKind> kinds_like(const Result& result, std::int64_t ranks) {
  constexpr double kRounded = 0.02;
  std::vector<CollectiveKind> kinds;
  for (const auto& [name, kind] : kPrograms) {
    const auto& operation = calibrate::find_operation(std::string(collective_name(kind)));
    const double factor = busbw_factor(kind, static_cast<double>(ranks));
    if (operation.sums == (result.redop != "none") && (operation.root >= 0) == result.rooted &&
        std::abs(result.busbw_per_algbw / factor - 1) < kRounded)
      kinds.push_back(kind);
  }
  return kinds;
}

/// The table of one run of a program.
struct Section {
  std::string program;
  std::set<std::int64_t> ranks;  ///< of the first group
  std::int64_t iterations = 0;
  std::string cadence = kBackToBack;
  std::vector<std::string> titles;  ///< of the columns
  std::vector<Result> results;
};

class TextReader {
 public:
  TextReader(const fs::path& path, std::string_view text) : path_(path), lines_(path, text) {}

  CurveFileContent read() {
    while (lines_.next())
      if (lines_.line().starts_with('#'))
        take_comment();
      else if (!section_.titles.empty() && lines_.is_row(5))
        section_.results.push_back(result());
    finish();
    return std::move(content_);
  }

 private:
  void take_comment() {
    static const std::regex start(R"(# Collective test starting: (?:\S*/)?(\w{1,64})\b.*)");
    static const std::regex counts(R"(# nThread.*warmup iters: *\d+ +iters: *(\d{1,9})\b.*)");
    static const std::regex rank(R"(# +Rank +(\d{1,9}) +(?:Group +(\d+) +)?Pid .*)");
    const std::string line(lines_.line());
    std::smatch part;
    if (line.starts_with("# nThread") || line.starts_with("# Collective test starting"))
      if (!section_.results.empty()) finish();
    if (std::regex_match(line, part, start)) section_.program = part[1];
    if (std::regex_match(line, part, counts)) section_.iterations = std::stoll(part[1]);
    if (line.starts_with("# Blocking Enabled: wait and barrier after each inner"))
      section_.cadence = kIsolated;
    if (std::regex_match(line, part, rank) && (!part[2].matched || part[2] == "0"))
      take_rank(std::stoll(part[1]));
    const auto& words = lines_.words();
    if (words.size() > 4 && words[1] == "size" && words[2] == "count")
      section_.titles.assign(words.begin() + 1, words.end());
  }

  void take_rank(std::int64_t rank) {
    if (!section_.ranks.insert(rank).second)
      lines_.refuse(
          fmt::format("rank {} stands here twice: built without MPI=1, each process of nccl-tests "
                      "measures alone",
                      rank));
  }

  /// Where "time" stands, or "cputime".
  std::vector<std::size_t> groups() const {
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < section_.titles.size(); ++i)
      if (section_.titles[i].ends_with("time")) at.push_back(i);
    if (at.size() != 2) lines_.refuse("the table above has no two columns named time");
    return at;
  }

  Result result() const {
    const auto at = groups();
    std::size_t expected = section_.titles.size(), found = lines_.words().size();
    // "2026-11-25 09:15:22"
    if (section_.titles.back() == "timestamp")
      expected -= 1, found -= std::min<std::size_t>(2, found);
    const std::size_t width = at[1] - at[0];
    const bool only_in_place = found + width == expected;  // the other group is left blank
    if (found != expected && !only_in_place)
      lines_.refuse(fmt::format("it has {} columns, and the table {}", found, expected));
    Result result;
    result.size = lines_.number(0);
    result.repetitions = section_.iterations;
    result.type = lines_.words()[column("type")];
    result.redop = lines_.words()[column("redop")];
    if (const std::size_t root = column("root"); root < at[0])
      result.rooted = lines_.words()[root] != "-1";
    const std::size_t in_place_at = only_in_place ? at[0] : at[1];
    result.in_place_row = group(in_place_at);
    if (!only_in_place) result.out_of_place_row = group(at[0]);
    const std::size_t either = std::isnan(result.in_place_row.median_s) ? at[0] : in_place_at;
    if (lines_.words()[either] != "N/A" && lines_.number(either + 1) > 0)
      result.busbw_per_algbw = lines_.number(either + 2) / lines_.number(either + 1);
    return result;
  }

  std::size_t column(std::string_view title) const {
    return static_cast<std::size_t>(
        std::find(section_.titles.begin(), section_.titles.end(), title) - section_.titles.begin());
  }

  /// time, algbw, busbw, #wrong.
  CalibrationRow group(std::size_t at) const {
    CalibrationRow row;
    if (lines_.words()[at] == "N/A") return row;
    row.median_s = row.mean_s = lines_.number(at) * kMicrosecond;
    if (lines_.words()[at + 3] != "N/A") row.wrong = std::llround(lines_.number(at + 3));
    return row;
  }

  CollectiveKind kind() const {
    if (!section_.program.empty()) {
      const auto kind = kind_named(section_.program, kPrograms);
      if (!kind) throw wrong(fmt::format("{} has no counterpart here", section_.program));
      return *kind;
    }
    // The largest message, where rounding leaves most digits.
    const std::vector<CollectiveKind> kinds = kinds_like(section_.results.back(), ranks());
    if (kinds.size() == 1) return kinds.front();
    std::vector<std::string_view> names;
    for (const CollectiveKind one : kinds)
      names.push_back(collective_name(one));
    throw wrong(kinds.empty() ? "its columns are of no collective"
                              : fmt::format("it does not name its collective, which may be {}",
                                            fmt::join(names, " or ")));
  }

  Error wrong(const std::string& why) const {
    return Error(ExitCode::kBadData, fmt::format("'{}': {}", path_.string(), why),
                 "nccl-tests names its collective since June 2025, and in -J FILE");
  }

  std::int64_t ranks() const { return static_cast<std::int64_t>(section_.ranks.size()); }

  void finish() {
    if (!section_.results.empty() && ranks() == 0)
      throw wrong("no line '#  Rank 0 … Pid …' tells its ranks");
    if (!section_.results.empty() && ranks() == 1)
      content_.remarks.push_back(
          fmt::format("{}: a table of one rank is left out", path_.string()));
    else if (!section_.results.empty())
      content_.curves.push_back({ranks(), rows()});
    section_ = {};
  }

  std::vector<CalibrationRow> rows() const {
    Measured table{kind(), ranks()};
    table.cadence = section_.cadence;
    std::vector<CalibrationRow> all;
    for (const Result& result : section_.results)
      all.push_back(row_of(result, table));
    return all;
  }

  const fs::path& path_;
  CurveLines lines_;
  Section section_;
  CurveFileContent content_;
};

// --- JSON ---

double number_or_none(const json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : kNotMeasured;
}

/// A group of a row, with the statistics of single calls where there are any.
CalibrationRow json_group(const json& row, const char* group, const char* statistics) {
  CalibrationRow result;
  if (!row.contains(group) || !row.at(group).is_object()) return result;
  const json& times = row.at(group);
  const double time_us = number_or_none(times, times.contains("time") ? "time" : "cpu_time");
  result.median_s = result.mean_s = time_us * kMicrosecond;
  if (const double wrong = number_or_none(times, "nwrong"); std::isfinite(wrong))
    result.wrong = std::llround(std::min(wrong, 1e15));
  if (!row.contains(statistics) || !row.at(statistics).is_object()) return result;
  const json& calls = row.at(statistics);
  const double median_us = number_or_none(calls, "p50_us");
  if (std::isfinite(median_us)) result.median_s = median_us * kMicrosecond;
  result.minimum_s = number_or_none(calls, "min_us") * kMicrosecond;
  result.maximum_s = number_or_none(calls, "max_us") * kMicrosecond;
  result.p95_s = number_or_none(calls, "p95_us") * kMicrosecond;
  result.p99_s = number_or_none(calls, "p99_us") * kMicrosecond;
  result.deviation_s = number_or_none(calls, "stdev_us") * kMicrosecond;
  return result;
}

Curves json_curves(const json& results, const Measured& table) {
  Curves curves{table.ranks, {}};
  for (const json& one : results) {
    Result result;
    result.size = static_cast<double>(whole_number<std::int64_t>(one.at("size")));
    result.type = one.at("type").get<std::string>();
    result.in_place_row = json_group(one, "in_place", "in_place_per_iter");
    result.out_of_place_row = json_group(one, "out_of_place", "out_of_place_per_iter");
    if (one.contains("actual_iterations"))
      result.repetitions = whole_number<std::int64_t>(one.at("actual_iterations"));
    curves.rows.push_back(row_of(result, table));
  }
  return curves;
}

/// gradsync-calibrate's part, which holds all of its tables.
std::vector<Curves> calibrate_curves(const json& page) {
  std::vector<Curves> all;
  for (const json& curve : page.at("curves")) {
    const std::string name = curve.at("collective").get<std::string>();
    all.push_back(json_curves(
        curve.at("results"),
        {calibrate::find_operation(name).kind, static_cast<std::int64_t>(page.at("ranks").size()),
         curve.at("transport").get<std::string>(), curve.at("cadence").get<std::string>()}));
  }
  return all;
}

Curves nccl_tests_curves(const fs::path& path, const json& page) {
  const std::string program = fs::path(page.at("args").at(0).get<std::string>()).filename();
  const auto kind = kind_named(program, kPrograms);
  if (!kind)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}': {} has no counterpart here", path.string(), program));
  const json& config = page.at("config");
  std::int64_t ranks = 0;
  for (const json& device : config.at("devices"))
    if (whole_number<std::int64_t>(device.at("group")) == 0) ++ranks;
  if (ranks == 0)
    throw Error(ExitCode::kBadData, fmt::format("'{}' names no device", path.string()));
  Measured table{*kind, ranks};
  const json blocks = config.value("blocking_collectives", json());
  if (blocks == "true" || blocks == true) table.cadence = kIsolated;
  return json_curves(page.at("results"), table);
}

CurveFileContent read_json(const fs::path& path, std::string_view text) {
  try {
    const json page = json::parse(text);
    if (page.value("schema_version", "").starts_with("gradsync-calibration/"))
      return {calibrate_curves(page), {}};
    return {{nccl_tests_curves(path, page)}, {}};
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' is not nccl-tests' JSON: {}", path.string(), error.what()));
  }
}

}  // namespace

CurveFormat nccl_tests_text() {
  return {[](std::string_view text) {
            return text.find("# nThread ") != text.npos && text.find("algbw") != text.npos;
          },
          [](const CurveFile& file, std::string_view text) {
            return TextReader(file.path, text).read();
          }};
}

CurveFormat nccl_tests_json() {
  return {[](std::string_view text) {
            const std::size_t first = text.find_first_not_of(" \t\r\n");
            return first != text.npos && text[first] == '{';
          },
          [](const CurveFile& file, std::string_view text) { return read_json(file.path, text); }};
}

}  // namespace gradsync::report
