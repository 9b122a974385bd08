#include "collectives/printer.h"

#include <cmath>

#include <fmt/format.h>

#include "options/transport_choice.h"
#include "record/collective_call.h"
#include "support/parse.h"

namespace gradsync::calibrate {

namespace {

const char* const kNotAvailable = "n/a";

/// `value` in `unit` with `decimals` digits, or n/a.
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
  if (std::isnan(fit.alpha_s)) return fmt::format("n/a (needs two sizes, n = {})", fit.count);
  return fmt::format(
      "{:.2f} us + bytes * {:.4f} ns (residual: rms {:.1f} %, largest {:.1f} %, "
      "n = {} sizes)",
      fit.alpha_s * 1e6, fit.beta_s_per_byte * 1e9, fit.residual_rms * 1e2,
      fit.residual_largest * 1e2, fit.count);
}

}  // namespace

std::string calibration_header(const OperationEntry& operation, const std::string& transport,
                               const std::string& cadence, int ranks, const CallCounts& counts) {
  const bool alone = cadence == kCadences[0];
  return fmt::format(
             "#\n# Collective: {} ({}), {}, {}\n"
             "# {}; time: median of at most {} calls of the slowest rank, after {} to warm up\n#\n",
             operation.name, transport_text(transport), cadence, count_text(ranks, "rank"),
             alone ? "A barrier before each call" : "One call after the other", counts.timed,
             counts.warmup) +
         fmt::format("#{:>11}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}{:>8}\n", "size", "count",
                     "type", "redop", "root", "time", "algbw", "busbw", "#wrong") +
         fmt::format("#{:>11}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}\n", "(B)", "(elements)", "", "",
                     "", "(us)", "(GB/s)", "(GB/s)");
}

std::string calibration_line(const OperationEntry& operation, const CalibrationRow& row,
                             int ranks) {
  const double size = message_bytes(row.kind, static_cast<double>(row.bytes), ranks);
  const double bus = busbw(row.kind, static_cast<double>(row.bytes), ranks, row.median_s);
  return fmt::format("{:>12}{:>14}{:>10}{:>8}{:>8}{:>11}{:>9}{:>9}{:>8}\n",
                     static_cast<std::int64_t>(size), row.bytes / 4, "float",
                     operation.sums ? "sum" : "none", operation.root, shown(row.median_s, 1e-6, 2),
                     shown(algbw(size, row.median_s), kGB, 3), shown(bus, kGB, 3),
                     row.wrong < 0 ? "N/A" : std::to_string(row.wrong));
}

std::string calibration_footer(const CalibrationCurve& curve) {
  const std::string half = std::isnan(curve.half_bandwidth_bytes)
                               ? kNotAvailable
                               : fmt::format("{:.0f} B a rank", curve.half_bandwidth_bytes);
  return fmt::format("# Out of bounds values : {}\n", out_of_bounds(curve.wrong)) +
         fmt::format("# Avg bus bandwidth    : {}\n", shown(curve.average_busbw, kGB, 6)) +
         fmt::format("# Plateau              : {} GB/s busbw (median of the 3 largest sizes)\n",
                     shown(curve.plateau_busbw, kGB, 3)) +
         fmt::format("# Half-bandwidth size  : {}\n", half) +
         fmt::format("# Fit of time          : {}\n#\n", fit_text(curve.fit));
}

}  // namespace gradsync::calibrate
