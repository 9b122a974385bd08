// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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

/// The median over the rounds of the mean over the ranks of one figure of one kind of window.
double window_figure(const std::vector<WindowRow>& windows, std::string_view kind,
                     double RankWindow::*figure);

/// How many iterations of the reference an iteration of a contender counts as, of which a whole one
/// of `batch_global` samples counts as `worth`: the last one of an epoch may accumulate over fewer
/// passes. NaN where the batch is not known.
double worth_of_iteration(double worth, std::int64_t samples, std::int64_t batch_global);

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

/// Rounds in a row of which each such number holds equally many exchanges of a contender that
/// exchanges once in `period` iterations (--local-steps), in blocks of `block` iterations of which
/// the first `block_warmup` do not count.
std::int64_t rounds_per_exchange(std::int64_t period, std::int64_t block,
                                 std::int64_t block_warmup);

/// The blocks of two contenders in rounds that both have, or their means over so many such rounds
/// in a row (rounds_per_exchange of both): a single round lacks what one exchanges in others.
std::vector<std::pair<BlockTime, BlockTime>> paired_blocks(
    const std::map<std::int64_t, BlockTime>& one, const std::map<std::int64_t, BlockTime>& other,
    std::int64_t rounds = 1);

/// Per iteration, the longest time of a rank, and its parts on the rank that the others waited for:
/// the one whose time without its own waiting for ranks is the longest. What that one began later,
/// and is missing in its time, is in its rest. `ranks`: sums over the block's iterations.
BlockTime last_to_come(const std::vector<BlockTime>& ranks, std::size_t iterations);

}  // namespace gradsync
