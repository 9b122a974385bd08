// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/run_group.h"
#include "analysis/read/columns.h"
#include "record/reader.h"
#include "record/row_figures.h"
#include "record/run.h"
#include "stats/bandwidth.h"

/// Bandwidths and allreduce times: pure formulas, used for run files and for published tables
/// alike (speedup and the derived split: comparisons.h). Bytes, seconds and bytes per second; for
/// people GB = 1e9 bytes and GiB = 2^30 bytes. A result is NaN where an input is NaN, a time is not
/// positive or nothing crosses a link (one rank). Nothing is clipped.
namespace gradsync::report {

/// How published reports turn a time into "the bandwidth" of an allreduced gradient.
enum class BandwidthConvention { kBusbw, kMessage, kRingEpoch, kTotalVolume };
inline constexpr std::array<std::string_view, 4> kConventionNames = {"busbw", "message",
                                                                     "ring-epoch", "total-volume"};

/// What a convention is computed from: one epoch, or any other number of iterations.
struct EpochCommunication {
  double message_bytes = kNotMeasured;  ///< S: the gradient bytes of one rank in one iteration
  double ranks = kNotMeasured;
  double iterations = kNotMeasured;       ///< that exchange
  double communication_s = kNotMeasured;  ///< of all these iterations together
};

/// Bytes per second; t is communication_s:
///   busbw         2(n − 1)/n · S · iterations / t   (nccl-tests' busbw of the mean iteration)
///   message       S / t                             (one message over the time of all of them)
///   ring-epoch    2(n − 1)/n · S / t                (the same, with the ring's factor)
///   total-volume  2(n − 1) · S · iterations / t     (what all links together carry)
/// The two in the middle hold one message against the time of all: they are as many times too
/// small as there are iterations, and are here because reports print them.
double bandwidth(BandwidthConvention convention, const EpochCommunication& epoch);

std::string_view convention_name(BandwidthConvention convention);
/// The formula in symbols, for headers and notes.
std::string_view convention_formula(BandwidthConvention convention);
/// Bytes in the unit that reports with this convention print: kGiB for ring-epoch, else kGB.
double convention_unit_bytes(BandwidthConvention convention);
/// "GB/s" or "GiB/s".
std::string_view convention_unit(BandwidthConvention convention);
/// The machine name of a column of it: "ring_epoch_derived_gib_per_s" for the method "derived".
std::string convention_column(BandwidthConvention convention, std::string_view method);
/// Nothing if `name` is none of kConventionNames.
std::optional<BandwidthConvention> parse_convention(std::string_view name);

/// Predicted time of one allreduce of S bytes over n ranks; 0 s for one rank.
/// (S/B) · log2 n: a tree that passes the whole message on in every round.
double allreduce_tree_s(double bytes, double bandwidth_bytes_per_s, double ranks);
/// 2(n − 1)/n · S/B: the ring, latency left out.
double allreduce_ring_s(double bytes, double bandwidth_bytes_per_s, double ranks);

/// How long data of a collective moved on one rank: from the arrival of the last rank to the end;
/// where that was not recorded (schema 1), all the rank was in it.
double moving_s(const BucketTimes& times);

/// Shortest moving_s of one collective over the ranks, which leaves waiting out in either case. NaN
/// where a rank did not measure it.
double shortest_moving_s(const IterationRow& row, std::size_t bucket);

/// The collectives of one kind in an iteration of a group's runs. Iterations of other sizes are
/// left out: the last of an epoch may be of fewer images or passes.
struct CollectiveFigures {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<std::int64_t> sizes;  ///< payload bytes of one rank, as in most sampled iterations
  /// Sum of the transfer times of the collectives of this kind, of each such iteration.
  std::vector<double> transfer_s;

  /// Σ sizes.
  double payload_bytes() const;
};

/// One entry a kind that moved bytes, in the order of CollectiveKind. Blocks of consecutive steady
/// iterations, evenly spaced over each run, are read: at most 200 iterations a run.
///
/// Transfer time of one collective: for allreduce and allgather, where no rank can leave before
/// all have come, the shortest duration over the ranks, which leaves waiting out (duration =
/// transfer + wait, docs/numbers.md). For those with a root, ranks may leave early: from the moment
/// the last rank came to the moment the last one left, on rank 0's clock.
std::vector<CollectiveFigures> collective_figures(const RunGroup& group);

/// Seconds of collective number `bucket` of an iteration; NaN where a rank did not measure it.
double transfer_s(const IterationRow& row, std::size_t bucket);

/// Under which names calibration measured a collective that a run of `mode` over --transport
/// `transport` makes, the one that resembles it most first. A transport of our own moves
/// allreduces, some of them halves that lie where they need them, and MPI the rest; one that this
/// version does not know is none of these. Over MPI there is MPI's own and a ring of messages
/// ("mpi-ring"), by which modes exchange that compute or sleep meanwhile; allgathers and
/// reduce-scatters in place go by that ring alone, which calibration does not measure for them.
std::vector<std::string> calibrated_as(const std::string& transport, const std::string& mode,
                                       CollectiveKind kind);

/// What calibration measured of one kind of collective on the ranks of a run, for comparison with
/// training: the transport that the run used (else MPI's own, else the first), isolated calls (else
/// back to back). Of the first repeat that holds any itself, else of the first that has a
/// calibration file.
struct LinkCurve : CalibrationCurve {
  std::string file;  ///< of gradsync-calibrate; empty if a run holds it itself

  bool empty() const { return bytes.empty(); }
  /// Measured at this size, else interpolated between the two sizes around it (both axes
  /// logarithmic); NaN beyond the sizes measured.
  double time_at(double size) const;
};

LinkCurve link_curve(const RunGroup& group, CollectiveKind kind);

/// What travels through the link of one rank in an iteration: the mean over the steady iterations
/// in bytes, by Traffic. NaN where there is no such iteration.
struct TrafficFigures {
  std::size_t iterations = 0;
  std::array<double, kRowCategories> bytes{};

  double total() const;
};

/// One entry a rank. One block of one category is in memory at a time.
std::vector<TrafficFigures> traffic_figures(RunReader& run, const SteadyRows& steady);

/// What a rank sends in an iteration to synchronize, and how long it takes: means over steady
/// iterations, of the rank that has most.
struct SentFigures {
  double link_bytes = 0;            ///< of gradients, parameters, images and outputs, on its link
  double moving_s = kNotMeasured;   ///< in which they could move
  double exposed_s = kNotMeasured;  ///< of that, what the iteration waits for
  double convert_s = kNotMeasured;  ///< for turning values into what travels, and back
};
SentFigures sent_figures(const Run& run);

TrafficFigures sum_of(const std::vector<TrafficFigures>& ranks);

}  // namespace gradsync::report
