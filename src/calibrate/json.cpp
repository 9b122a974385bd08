#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "calibrate/printer.h"
#include "stats/bandwidth.h"

namespace gradsync::calibrate {

namespace {

using nlohmann::ordered_json;

/// `value` in `unit`; NaN is null.
ordered_json number(double value, double unit = 1) {
  return std::isfinite(value) ? ordered_json(value / unit) : ordered_json(nullptr);
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
                       {"args", split_list(frame.command_line, ' ')},
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
  page["out_of_bounds"] = {{"count", std::max<std::int64_t>(curve.wrong, 0)},
                           {"okay", flag(curve.wrong <= 0)}};
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
