// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "record/run.h"

/// Curves of collectives, time against size, in files of gradsync-calibrate and of other tools.
namespace gradsync::report {

/// A file and the ranks that it was measured on: "FILE" or "FILE:ranks=N", as options name it.
struct CurveFile {
  std::filesystem::path path;
  std::int64_t ranks = 0;  ///< 0: as the file says
};

/// Throws Error kUsage for a number of ranks below 2 or above 65,536, and for no file.
CurveFile parse_curve_file(const std::string& text);

/// What a file holds of one number of ranks. Rows are those of a calibration (CalibrationRow):
/// bytes the payload of one rank, the time that the tool prints as median and mean, of the slowest
/// rank where the tool tells it, float as the type.
struct Curves {
  std::int64_t ranks = 0;
  std::vector<CalibrationRow> rows;
};

struct CurveFileContent {
  std::vector<Curves> curves;  ///< by rising number of ranks, each once
  /// What was left out, or stands for something else: "nccl.txt: PingPong is left out".
  std::vector<std::string> remarks;
};

/// Reads a run file that holds calibration, text or JSON of nccl-tests and rccl-tests,
/// gradsync-calibrate's JSON, and the text of osu_allreduce and its like or of Intel MPI Benchmarks
/// (docs/numbers.md): several runs, also failed ones, behind any prefix of a launcher or logger.
/// Lines around the tools' own are passed over; tables, titles and rows that cannot be read are
/// left out with a remark.
///
/// Throws Error kNoInput for a missing file; kBadData for an unknown format, no row of a collective
/// (with the reasons), sizes that stand in the file several times with different times, and ranks
/// that neither the file nor its name tells, or that the two tell differently.
CurveFileContent read_curve_file(const CurveFile& file);

}  // namespace gradsync::report
