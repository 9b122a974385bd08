// SPDX-License-Identifier: BSD-3-Clause
#include "calibrate/printer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json_number.h"
#include "base/parse.h"
#include "stats/bandwidth.h"

namespace gradsync::calibrate {

namespace {

const char* const kNotAvailable = "N/A";

/// `value` in `unit` with `decimals` digits, or N/A.
std::string shown(double value, double unit, int decimals) {
  return std::isnan(value) ? kNotAvailable : fmt::format("{:.{}f}", value / unit, decimals);
}

std::string out_of_bounds(std::int64_t wrong) {
  if (wrong < 0) return "N/A (not checked)";
  return fmt::format("{} {}", wrong, wrong == 0 ? "OK" : "FAILED");
}

std::string fit_text(const AlphaBeta& fit) {
  if (std::isnan(fit.alpha_s)) return fmt::format("N/A (needs two sizes, n = {})", fit.count);
  return fmt::format(
      "{:.2f} us + bytes * {:.4f} ns (residual: rms {:.1f} %, largest {:.1f} %, "
      "n = {} sizes)",
      fit.alpha_s * 1e6, fit.beta_s_per_byte * 1e9, fit.residual_rms * 1e2,
      fit.residual_largest * 1e2, fit.count);
}

std::string_view over_ranks_text(OverRanks over_ranks) {
  switch (over_ranks) {
    case OverRanks::kRoot:
      return "of rank 0";
    case OverRanks::kMean:
      return "over the mean of the ranks";
    case OverRanks::kFastest:
      return "of the fastest rank";
    case OverRanks::kSlowest:
      break;
  }
  return "of the slowest rank";
}

/// One placement: time, algbw, busbw, #wrong, and what -I adds.
std::string group_text(const PrintedColumns& columns, const std::array<std::string, 8>& cells) {
  std::string text = fmt::format("{:>11}{:>9}{:>9}{:>8}", cells[0], cells[1], cells[2], cells[3]);
  for (std::size_t i = 4; columns.per_iteration != 0 && i < cells.size(); ++i)
    text += fmt::format("{:>11}", cells[i]);
  return text;
}

std::string group_titles(const PrintedColumns& columns) {
  return group_text(columns,
                    {"time", "algbw", "busbw", "#wrong", "i_min", "i_max", "i_p99", "i_cv%"});
}

std::string group_units(const PrintedColumns& columns) {
  return group_text(columns, {"(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)"});
}

std::string empty_group(const PrintedColumns& columns) {
  std::array<std::string, 8> cells;
  cells.fill("N/A");
  return group_text(columns, cells);
}

std::string group_of(const CalibrationRow& row, int ranks, const PrintedColumns& columns) {
  const auto payload = static_cast<double>(row.bytes);
  const double size = message_bytes(row.kind, payload, ranks);
  const double bus = busbw(row.kind, payload, ranks, row.median_s);
  return group_text(columns,
                    {shown(row.median_s, 1e-6, 2), shown(algbw(size, row.median_s), kGB, 3),
                     shown(bus, kGB, 3), row.wrong < 0 ? kNotAvailable : std::to_string(row.wrong),
                     shown(row.minimum_s, 1e-6, 2), shown(row.maximum_s, 1e-6, 2),
                     shown(row.p99_s, 1e-6, 2), shown(row.deviation_s / row.mean_s, 1e-2, 2)});
}

/// Whether a row is of the size that a rule states, rounded as the sizes of a sweep are; those of
/// buckets are not.
bool has_size(const CalibrationRow& row, std::int64_t bytes) {
  return row.bytes == bytes ||
         row.bytes ==
             whole_value_bytes(whole_value_bytes(bytes), value_bytes(find_data_type(row.type)));
}

}  // namespace

std::string calibration_header(const PlannedCell& cell, const std::string& transport, int ranks,
                               const CallCounts& counts, const PrintedColumns& columns) {
  const bool alone = cell.cadence == kCadences[0];
  const std::string group = group_titles(columns);
  const std::string units = group_units(columns);
  const char* by = columns.per_iteration != 0 ? " (+ per-iteration)" : "";
  const auto width = group.size();
  return fmt::format(
             "#\n# Collective: {} ({}), {}, {}\n"
             "# {}; time: median of at most {} calls {}, after {} to warm up\n{}#\n",
             cell.operation->name, transport_text(transport), cell.cadence,
             count_text(ranks, "rank"),
             alone ? "A barrier before each call" : "One call after the other", counts.timed,
             over_ranks_text(counts.over_ranks), counts.warmup,
             columns.repeated
                 ? fmt::format("# Measured: {}; the other columns repeat it\n",
                               in_place(cell.operation->kind) ? "in place" : "out of place")
                 : "") +
         fmt::format("#{:>51}{:^{}}{:^{}}\n", "", std::string("out-of-place") + by, width,
                     std::string("in-place") + by, width) +
         fmt::format("#{:>11}{:>14}{:>10}{:>8}{:>8}{}{}{}\n", "size", "count", "type", "redop",
                     "root", group, group, columns.timestamps != 0 ? "  timestamp" : "") +
         fmt::format("#{:>11}{:>14}{:>10}{:>8}{:>8}{}{}\n", "(B)", "(elements)", "", "", "", units,
                     units);
}

std::string calibration_line(const OperationEntry& operation, const CalibrationRow& row, int ranks,
                             const PrintedColumns& columns, const std::string& timestamp) {
  const double size = message_bytes(row.kind, static_cast<double>(row.bytes), ranks);
  const std::string measured = group_of(row, ranks, columns);
  const std::string other = columns.repeated ? measured : empty_group(columns);
  const bool here = in_place(row.kind);
  return fmt::format("{:>12}{:>14}{:>10}{:>8}{:>8}{}{}{}\n", static_cast<std::int64_t>(size),
                     row.bytes / value_bytes(find_data_type(row.type)), row.type,
                     operation.sums ? "sum" : "none", operation.root, here ? other : measured,
                     here ? measured : other, columns.timestamps != 0 ? "  " + timestamp : "");
}

std::string calibration_footer(const CalibrationCurve& curve) {
  const std::string half = std::isnan(curve.half_bandwidth_bytes)
                               ? kNotAvailable
                               : fmt::format("{:.0f} B a rank", curve.half_bandwidth_bytes);
  return fmt::format("# Out of bounds values : {}\n", out_of_bounds(curve.wrong)) +
         fmt::format("# Avg bus bandwidth    : {}\n", shown(curve.average_busbw, kGB, 6)) +
         fmt::format("# Plateau              : {} GB/s busbw (median of the 3 largest sizes)\n",
                     shown(curve.plateau_busbw, kGB, 6)) +
         fmt::format("# Half-bandwidth size  : {}\n", half) +
         fmt::format("# Fit of time          : {}\n#\n", fit_text(curve.fit));
}

const OperationEntry& operation_of(const CalibrationCurve& curve) {
  const bool ring = curve.transport == kMpiRing;
  return find_operation(std::string(collective_name(curve.kind)) + (ring ? "-ring" : ""));
}

std::vector<Judgment> judge(const std::vector<Expectation>& expected,
                            const std::vector<CalibrationCurve>& curves) {
  std::vector<Judgment> judgments;
  for (const Expectation& one : expected) {
    const auto before = judgments.size();
    for (const CalibrationCurve& curve : curves)
      for (std::size_t i = 0; i < curve.rows.size(); ++i) {
        const bool named = one.collective.empty() || one.collective == operation_of(curve).name;
        if (!named || !has_size(curve.rows[i], one.bytes)) continue;
        judgments.push_back(
            {fmt::format("{}, {}: {} GB/s of {}", curve.name(), format_bytes(curve.rows[i].bytes),
                         shown(curve.busbw[i], kGB, 3), one.busbw / kGB),
             curve.busbw[i] >= one.busbw});
      }
    if (judgments.size() == before) judgments.push_back({one.text + ": not measured", false});
  }
  return judgments;
}

std::string expectation_footer(const std::vector<Judgment>& judgments) {
  std::string text;
  bool all = true;
  for (const Judgment& one : judgments) {
    text += fmt::format("# Expected             : {} {}\n", one.text, one.met ? "OK" : "FAILED");
    all = all && one.met;
  }
  if (!judgments.empty())
    text += fmt::format("# Expected bandwidth   : {}\n#\n", all ? "OK" : "FAILED");
  return text;
}

namespace {

using nlohmann::ordered_json;

/// `value` in `unit`; NaN is null.
ordered_json number(double value, double unit = 1) {
  return number_or_null(value / unit);
}

/// nccl-tests writes "true" and "false" as texts.
const char* flag(bool value) {
  return value ? "true" : "false";
}

ordered_json statistics_json(const CalibrationRow& row) {
  return {{"skipped_iterations", 0},
          {"min_us", number(row.minimum_s, 1e-6)},
          {"max_us", number(row.maximum_s, 1e-6)},
          {"avg_us", number(row.mean_s, 1e-6)},
          {"p50_us", number(row.median_s, 1e-6)},
          {"p95_us", number(row.p95_s, 1e-6)},
          {"p99_us", number(row.p99_s, 1e-6)},
          {"stdev_us", number(row.deviation_s, 1e-6)},
          {"cv_pct", number(row.deviation_s / row.mean_s, 1e-2)}};
}

ordered_json row_json(const CalibrationRow& row, std::size_t ranks) {
  const auto n = static_cast<double>(ranks);
  const double size = message_bytes(row.kind, static_cast<double>(row.bytes), n);
  const bool here = in_place(row.kind);
  const ordered_json measured = {
      {"time", number(row.median_s, 1e-6)},
      {"alg_bw", number(algbw(size, row.median_s), kGB)},
      {"bus_bw", number(busbw(row.kind, static_cast<double>(row.bytes), n, row.median_s), kGB)},
      {"nwrong", row.wrong < 0 ? ordered_json(nullptr) : ordered_json(row.wrong)}};
  return {{"size", static_cast<std::int64_t>(size)},
          {"bytes_per_rank", row.bytes},
          {"count", row.bytes / value_bytes(find_data_type(row.type))},
          {"type", row.type},
          {"of_bucket", row.of_bucket},
          {"out_of_place", here ? ordered_json(nullptr) : measured},
          {"in_place", here ? measured : ordered_json(nullptr)},
          {here ? "in_place_per_iter" : "out_of_place_per_iter", statistics_json(row)},
          {"actual_iterations", row.repetitions}};
}

ordered_json rows_json(const CalibrationCurve& curve, std::size_t ranks) {
  ordered_json results = ordered_json::array();
  for (const CalibrationRow& row : curve.rows)
    results.push_back(row_json(row, ranks));
  return results;
}

ordered_json curve_json(const CalibrationCurve& curve, std::size_t ranks) {
  return {{"collective", collective_name(curve.kind)},
          {"transport", curve.transport},
          {"cadence", curve.cadence},
          {"type", curve.type},
          {"results", rows_json(curve, ranks)},
          {"avg_bus_bw", number(curve.average_busbw, kGB)},
          {"plateau_bus_bw", number(curve.plateau_busbw, kGB)},
          {"half_bandwidth_bytes_per_rank", number(curve.half_bandwidth_bytes)},
          {"alpha_us", number(curve.fit.alpha_s, 1e-6)},
          {"beta_ns_per_byte", number(curve.fit.beta_s_per_byte, 1e-9)},
          {"residual_rms", number(curve.fit.residual_rms)},
          {"residual_largest", number(curve.fit.residual_largest)},
          {"out_of_bounds", curve.wrong < 0 ? ordered_json(nullptr) : ordered_json(curve.wrong)}};
}

ordered_json config_json(const CalibrateOptions& options, const std::vector<RankPlace>& places) {
  ordered_json devices = ordered_json::array();
  for (const RankPlace& place : places)
    devices.push_back({{"rank", place.rank},
                       {"group", 0},
                       {"hostname", place.host},
                       {"device", place.local_rank},
                       {"device_info", place.device}});
  const SizeSweep& sweep = options.sweep;
  const bool steps = sweep.step_bytes > 0;
  return {{"nthreads", 1},
          {"ngpus", 1},
          {"minimum_bytes", sweep.first_bytes},
          {"maximum_bytes", sweep.last_bytes},
          {steps ? "step_bytes" : "step_factor",
           steps ? ordered_json(sweep.step_bytes) : ordered_json(sweep.factor)},
          {"warmup_iters", options.counts.warmup},
          {"iterations", options.counts.timed},
          {"aggregated_iterations", 1},
          {"validation", options.counts.checked},
          {"graph", 0},
          {"blocking_collectives", flag(false)},
          {"per_iter_timing", flag(true)},
          {"per_iter_skip", 0},
          {"parallel_init", flag(false)},
          {"devices", devices}};
}

/// The keys of nccl-tests' JSON, in its order.
ordered_json nccl_tests_json(const CalibrationCurve& curve, const JsonFrame& frame) {
  ordered_json page = {{"version", 3},
                       {"start_time", frame.start_time},
                       {"args", ordered_json::array({frame.command_line})},
                       {"env", ordered_json::array()},
                       {"nccl_version", 0},
                       {"config", config_json(frame.options, frame.places)}};
  ordered_json results = rows_json(curve, frame.places.size());
  const OperationEntry& operation = operation_of(curve);
  for (ordered_json& row : results) {
    row["redop"] = operation.sums ? "sum" : "none";
    row["root"] = std::to_string(operation.root);
    row["experiment_name"] = "";
  }
  page["results"] = results;
  page["out_of_bounds"] = {{"count", curve.wrong < 0 ? ordered_json() : ordered_json(curve.wrong)},
                           {"okay", curve.wrong < 0 ? "unchecked" : flag(curve.wrong == 0)}};
  bool met = true;
  for (const Judgment& one : frame.judgments)
    met = met && one.met;
  page["average_bus_bandwidth"] = {{"bandwidth", number(curve.average_busbw, kGB)},
                                   {"okay", frame.judgments.empty() ? "unchecked" : flag(met)}};
  page["errors"] = ordered_json::array();
  page["end_time"] = frame.end_time;
  return page;
}

}  // namespace

std::string calibration_json(const std::vector<CalibrationCurve>& curves, const JsonFrame& frame) {
  ordered_json hosts = ordered_json::array();
  for (const RankPlace& place : frame.places)
    hosts.push_back({{"rank", place.rank}, {"host", place.host}, {"device", place.device}});
  ordered_json all = ordered_json::array();
  for (const CalibrationCurve& curve : curves)
    all.push_back(curve_json(curve, frame.places.size()));
  ordered_json page =
      curves.size() == 1 ? nccl_tests_json(curves[0], frame) : ordered_json::object();
  page["schema_version"] = "gradsync-calibration/1";
  page["command_line"] = frame.command_line;
  page["units"] = {{"time", "us"}, {"bw", "GB/s, 1e9 B"}, {"size", "B"}};
  page["ranks"] = hosts;
  page["curves"] = all;
  for (const Judgment& one : frame.judgments)
    page["expected"].push_back({{"text", one.text}, {"okay", one.met}});
  return page.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::filesystem::path json_path(const std::filesystem::path& path, const CalibrationCurve& curve) {
  const std::string type = curve.type == kFloatType ? "" : "-" + curve.type;
  return path.parent_path() / fmt::format("{}-{}-{}-{}{}{}", path.stem().string(),
                                          collective_name(curve.kind), curve.transport,
                                          curve.cadence, type, path.extension().string());
}

}  // namespace gradsync::calibrate
