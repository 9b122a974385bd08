#include "calibrate/printer.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/parse.h"
#include "options/transport_choice.h"
#include "stats/bandwidth.h"

namespace gradsync::calibrate {

namespace {

const char* const kNotAvailable = "N/A";

/// `value` in `unit` with `decimals` digits, or N/A.
std::string shown(double value, double unit, int decimals) {
  return std::isnan(value) ? kNotAvailable : fmt::format("{:.{}f}", value / unit, decimals);
}

std::string transport_text(const std::string& transport) {
  if (transport == kMpiRing) return "gradsync's ring over MPI, whose waits sleep; ddp uses it";
  for (const TransportTraits& one : kTransports)
    if (one.name == transport) return std::string(one.text);
  return transport;
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
        if (!named || curve.rows[i].bytes != one.bytes) continue;
        judgments.push_back(
            {fmt::format("{}, {}: {} GB/s of {}", curve.name(), format_bytes(one.bytes),
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

}  // namespace gradsync::calibrate
