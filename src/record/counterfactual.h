#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "record/run.h"

namespace gradsync {

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

}  // namespace gradsync
