#pragma once

#include <string>
#include <vector>

#include "record/run.h"
#include "stats/alpha_beta.h"

namespace gradsync {

/// Whether a curve or law may rest on a row: it has a payload, a time, and no wrong values.
bool usable(const CalibrationRow& row);

/// What calibration says of one collective over one transport in one cadence: its rows by size, and
/// what they add up to. Times are medians of the calls of the slowest rank, bytes the payload of
/// one rank, bandwidths bytes per second (NaN for one rank).
struct CalibrationCurve {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string transport, cadence, type;
  /// Sizes rising, each once: of the cycles of one size the one whose median is in the middle, with
  /// the repetitions, extremes and wrong values of all.
  std::vector<CalibrationRow> rows;
  std::vector<double> bytes, times_s, busbw;  ///< of the rows
  double average_busbw = kNotMeasured;        ///< mean over the sizes, as nccl-tests prints
  double plateau_busbw = kNotMeasured;        ///< plateau() of stats/alpha_beta.h
  double half_bandwidth_bytes = kNotMeasured;
  AlphaBeta fit;           ///< median time against the payload of one rank
  std::int64_t wrong = 0;  ///< over the rows that were checked; −1 if none was

  /// "allreduce, ring, isolated"; with the type where it is not float.
  std::string name() const;
};

/// The curves of a calibration in the order in which they first appear.
std::vector<CalibrationCurve> calibration_curves(const std::vector<CalibrationRow>& rows,
                                                 std::size_t ranks);

}  // namespace gradsync
