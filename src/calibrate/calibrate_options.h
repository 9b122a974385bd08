// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "base/cli/program_help.h"
#include "base/numbers.h"
#include "calibrate/plan.h"
#include "comm/watched_phases.h"
#include "machine/gpus.h"

namespace gradsync::calibrate {

/// A range of sizes: see size_range().
struct SizeSweep {
  std::int64_t first_bytes = 1 << 10, last_bytes = 64 << 20;
  double factor = 2;
  std::int64_t step_bytes = 0;
};

/// A lower limit of --expect: the busbw of every measured row of this size.
struct Expectation {
  std::string text;        ///< as it was given
  std::string collective;  ///< of OperationEntry::name; empty: all
  std::int64_t bytes = 0;  ///< payload of one rank
  double busbw = 0;        ///< bytes per second
};

/// Columns of the printed tables beside nccl-tests' 13.
struct PrintedColumns {
  int per_iteration = 0;  ///< shortest and longest call, 99 % quantile, coefficient of variation
  int timestamps = 0;     ///< when a row was measured
  bool repeated = false;  ///< the group that was not measured repeats the other
};

/// The settings of gradsync-calibrate, all checked.
struct CalibrateOptions {
  std::vector<std::int64_t> sizes;  ///< of the sweep, payload of one rank
  SizeSweep sweep;                  ///< what they are from
  std::string sizes_from;           ///< a run file, or empty
  std::vector<const OperationEntry*> operations;
  std::vector<std::string> cadences;
  std::vector<ValueType> types;
  std::vector<Expectation> expected;
  PrintedColumns columns;
  int cycles = 1;  ///< of each table
  CallCounts counts;
  std::string output, json;  ///< files, or empty
  double timeout_s = 60;
  DeviceRequest device;
  /// Names of transport_names(), or `all` alone: each that these ranks can use.
  std::vector<std::string> transports = {"auto"};
};

inline constexpr const char* kAllTransports = "all";

OptionTable calibrate_option_table();
ProgramHelp calibrate_help();
/// Throws Error kUsage with the option, its value, its source and what would be right.
CalibrateOptions calibrate_options(const OptionValues& values);

/// How long ranks wait for each other: --timeout.
WatchLimits watch_limits(const CalibrateOptions& options);

}  // namespace gradsync::calibrate
