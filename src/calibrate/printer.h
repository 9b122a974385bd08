// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "calibrate/calibrate_options.h"
#include "calibrate/plan.h"
#include "record/row_figures.h"

namespace gradsync::calibrate {

/// Calibration as nccl-tests prints it: comment lines begin with '#', rows have the columns size,
/// count, type, redop, root, and time, algbw, busbw, #wrong both out-of-place and in-place, of
/// which one is measured (in_place()). `size` is nccl-tests' (message_bytes), `count` the values of
/// one rank. What was not measured is N/A. `transport` is what moves it, as rows have it.
std::string calibration_header(const PlannedCell& cell, const std::string& transport, int ranks,
                               const CallCounts& counts, const PrintedColumns& columns);
/// `timestamp` is printed if the columns have it.
std::string calibration_line(const OperationEntry& operation, const CalibrationRow& row, int ranks,
                             const PrintedColumns& columns = {}, const std::string& timestamp = {});

/// nccl-tests' two lines of footer, the plateau, the half-bandwidth size and the fit.
std::string calibration_footer(const CalibrationCurve& curve);

/// The entry of operations() that a curve is of: the ring over MPI is one of its own.
const OperationEntry& operation_of(const CalibrationCurve& curve);

/// What an expectation and a measured row of its size say.
struct Judgment {
  std::string text;  ///< "allreduce, shm, isolated, 1 MiB: 3.21 GB/s of 2.5"
  bool met = false;
};
/// Judges every expectation for each row of its collective and size; one without a row is not met.
std::vector<Judgment> judge(const std::vector<Expectation>& expected,
                            const std::vector<CalibrationCurve>& curves);
/// A line for each and one for all; nothing of none.
std::string expectation_footer(const std::vector<Judgment>& judgments);

/// What JSON holds beside the curves.
struct JsonFrame {
  std::vector<RankPlace> places;
  std::string command_line;
  std::string start_time, end_time;  ///< ISO 8601, UTC
  const CalibrateOptions& options;
  std::vector<Judgment> judgments = {};
};
/// The curves as JSON; NaN is null. With one curve nccl-tests' layout (version 3 of its JSON) as
/// well.
std::string calibration_json(const std::vector<CalibrationCurve>& curves, const JsonFrame& frame);
/// Name of a curve's file where several curves have one each: "FILE-allreduce-shm-isolated.json".
std::filesystem::path json_path(const std::filesystem::path& path, const CalibrationCurve& curve);

}  // namespace gradsync::calibrate
