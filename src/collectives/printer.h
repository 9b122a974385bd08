#pragma once

#include <iosfwd>
#include <string>

#include "collectives/plan.h"
#include "record/calibration_curve.h"

namespace gradsync::calibrate {

/// Calibration as nccl-tests prints it: comment lines begin with '#', rows have the columns size,
/// count, type, redop, root, time, algbw, busbw, #wrong. `size` is nccl-tests' (the total over the
/// ranks for gather and scatter), `count` the values of one rank. What was not measured is n/a.
/// `transport` is what moves it, as rows have it.
std::string calibration_header(const OperationEntry& operation, const std::string& transport,
                               const std::string& cadence, int ranks, const CallCounts& counts);
std::string calibration_line(const OperationEntry& operation, const CalibrationRow& row, int ranks);

/// nccl-tests' two lines of footer, the plateau, the half-bandwidth size and the fit.
std::string calibration_footer(const CalibrationCurve& curve);

/// The same as JSON, with nccl-tests' names where they overlap; NaN is null.
std::string calibration_json(const std::vector<CalibrationCurve>& curves,
                             const std::vector<RankPlace>& places, const std::string& command_line);

}  // namespace gradsync::calibrate
