// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "record/run.h"
#include "stats/bandwidth.h"

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
  double plateau_busbw = kNotMeasured;        ///< plateau() of stats/bandwidth.h
  double half_bandwidth_bytes = kNotMeasured;
  AlphaBeta fit;           ///< median time against the payload of one rank
  std::int64_t wrong = 0;  ///< over the rows that were checked; −1 if none was

  /// "allreduce, ring, isolated"; with the type where it is not float.
  std::string name() const;
};

/// The curves of a calibration in the order in which they first appear.
std::vector<CalibrationCurve> calibration_curves(const std::vector<CalibrationRow>& rows,
                                                 std::size_t ranks);

/// What the windows of --counterfactual say, in seconds per iteration. A window's time is the mean
/// over its ranks, a kind's the median over its rounds; NaN where a kind has no window.
struct Counterfactual {
  double compute_only_s = kNotMeasured;
  double communication_s = kNotMeasured;
  double serial_s = kNotMeasured;
  double overlapped_s = kNotMeasured;
  double unmeasured_s = kNotMeasured;      ///< overlapped, without stamps
  double compute_alone_s = kNotMeasured;   ///< compute intervals of compute-only
  double compute_beside_s = kNotMeasured;  ///< of overlapped
  std::int64_t rounds = 0;                 ///< the most that a kind has
  std::int64_t iterations = 0;             ///< of the shortest window

  /// (T_serial − T_overlapped) / T_communication: the part of communication that overlap hides. NaN
  /// for modes without overlap, whose windows hold nothing serial: they are serial themselves.
  double overlap_gain() const;
  /// The OSU micro-benchmarks' form in percent: max(0, 100·(1 − (T_overlapped −
  /// T_compute)/T_comm)).
  double osu_overlap_percent() const;
  /// Compute beside communication − compute alone; NaN for modes without overlap.
  double contention_s() const;
  /// 100·(T_overlapped − T_unmeasured)/T_unmeasured: stamps, and the gathering of the rows.
  double measuring_percent() const;
};

Counterfactual counterfactual(const std::vector<WindowRow>& windows);

/// The median over the rounds of the mean over the ranks of one figure of one kind of window.
double window_figure(const std::vector<WindowRow>& windows, std::string_view kind,
                     double RankWindow::*figure);

/// The parts of an iteration's time, which add up to it.
enum class CostPart { kCompute, kExposed, kWait, kRest };
inline constexpr std::array<std::string_view, 4> kCostParts = {"compute", "exposed", "wait",
                                                               "rest"};

/// Time of a block of iterations of one contender (`gradsync-train --compare`).
struct BlockTime {
  double time_s = 0;
  std::array<double, kCostParts.size()> parts_s{};

  double part_s(CostPart part) const { return parts_s[static_cast<std::size_t>(part)]; }
  /// Adds an iteration of one rank.
  void add(double iteration_s, double compute_s, double exposed_s, double wait_s);
};

/// Per iteration, the longest time of a rank, and its parts on the rank that the others waited for:
/// the one whose time without its own waiting for ranks is the longest. What that one began later,
/// and is missing in its time, is in its rest. `ranks`: sums over the block's iterations.
BlockTime last_to_come(const std::vector<BlockTime>& ranks, std::size_t iterations);

}  // namespace gradsync
