#pragma once

#include <string>
#include <vector>

#include "analysis/figures/run_group.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

/// Under which names calibration measured a collective that a run over --transport `transport`
/// makes, the one that resembles it most first. A transport of our own moves all-reduces, and MPI
/// the rest; over MPI there is MPI's own and a ring of messages ("mpi-ring"), which overlaps with
/// compute.
std::vector<std::string> calibrated_as(const std::string& transport, CollectiveKind kind,
                                       bool beside_compute);

/// What calibration measured of one kind of collective on the ranks of a run, for comparison with
/// training: the transport that the run used (else MPI's own, else the first), isolated calls (else
/// back to back). Of the first repeat that holds any itself, else of the first that has a
/// calibration file.
struct LinkCurve {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string transport, cadence;
  std::string file;            ///< of gradsync-calibrate; empty if a run holds it itself
  std::vector<double> bytes;   ///< payload of one rank, ascending, each once
  std::vector<double> time_s;  ///< median

  bool empty() const { return bytes.empty(); }
  /// Measured at this size, else interpolated between the two sizes around it (both axes
  /// logarithmic); NaN beyond the sizes measured.
  double time_at(double size) const;
  /// busbw of large messages (stats/bandwidth.h: plateau) in bytes per second.
  double plateau_busbw(double ranks) const;
  AlphaBeta fit() const;
};

LinkCurve link_curve(const RunGroup& group, CollectiveKind kind);

}  // namespace gradsync::report
