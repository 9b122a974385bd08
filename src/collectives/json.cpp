#include <cmath>

#include <nlohmann/json.hpp>

#include "collectives/printer.h"
#include "record/collective_call.h"

namespace gradsync::calibrate {

namespace {

using nlohmann::ordered_json;

/// `value` in `unit`; NaN is null.
ordered_json number(double value, double unit = 1) {
  return std::isfinite(value) ? ordered_json(value / unit) : ordered_json(nullptr);
}

ordered_json row_json(const CalibrationRow& row, std::size_t ranks) {
  const auto n = static_cast<double>(ranks);
  const double size = message_bytes(row.kind, static_cast<double>(row.bytes), n);
  return {
      {"size", size},
      {"bytes_per_rank", row.bytes},
      {"count", row.bytes / 4},
      {"type", "float"},
      {"of_bucket", row.of_bucket},
      {"repetitions", row.repetitions},
      {"in_place",
       {{"time", number(row.median_s, 1e-6)},
        {"mean_us", number(row.mean_s, 1e-6)},
        {"min_us", number(row.minimum_s, 1e-6)},
        {"max_us", number(row.maximum_s, 1e-6)},
        {"alg_bw", number(algbw(size, row.median_s), kGB)},
        {"bus_bw", number(busbw(row.kind, static_cast<double>(row.bytes), n, row.median_s), kGB)},
        {"nwrong", row.wrong < 0 ? ordered_json(nullptr) : ordered_json(row.wrong)}}}};
}

ordered_json curve_json(const CalibrationCurve& curve, std::size_t ranks) {
  ordered_json results = ordered_json::array();
  for (const CalibrationRow& row : curve.rows)
    results.push_back(row_json(row, ranks));
  return {{"collective", collective_name(curve.kind)},
          {"transport", curve.transport},
          {"cadence", curve.cadence},
          {"results", results},
          {"avg_bus_bw", number(curve.average_busbw, kGB)},
          {"plateau_bus_bw", number(curve.plateau_busbw, kGB)},
          {"half_bandwidth_bytes_per_rank", number(curve.half_bandwidth_bytes)},
          {"alpha_us", number(curve.fit.alpha_s, 1e-6)},
          {"beta_ns_per_byte", number(curve.fit.beta_s_per_byte, 1e-9)},
          {"residual_rms", number(curve.fit.residual_rms)},
          {"residual_largest", number(curve.fit.residual_largest)},
          {"out_of_bounds", curve.wrong < 0 ? ordered_json(nullptr) : ordered_json(curve.wrong)}};
}

}  // namespace

std::string calibration_json(const std::vector<CalibrationCurve>& curves,
                             const std::vector<RankPlace>& places,
                             const std::string& command_line) {
  ordered_json hosts = ordered_json::array();
  for (const RankPlace& place : places)
    hosts.push_back({{"rank", place.rank}, {"host", place.host}, {"device", place.device}});
  ordered_json all = ordered_json::array();
  for (const CalibrationCurve& curve : curves)
    all.push_back(curve_json(curve, places.size()));
  const ordered_json page = {{"schema_version", "gradsync-calibration/1"},
                             {"command_line", command_line},
                             {"units", {{"time", "us"}, {"bw", "GB/s, 1e9 B"}, {"size", "B"}}},
                             {"ranks", hosts},
                             {"curves", all}};
  return page.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gradsync::calibrate
