#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "record/run.h"
#include "stats/bandwidth.h"

/// Bandwidths and all-reduce times: pure formulas, used for run files and for published tables
/// alike (speedup and the derived split: scaling.h). Bytes, seconds and bytes per second; for
/// people GB = 1e9 bytes and GiB = 2^30 bytes. A result is NaN where an input is NaN, a time is not
/// positive or nothing crosses a link (one rank). Nothing is clipped.
namespace gradsync::report {

/// How published reports turn a time into "the bandwidth" of an all-reduced gradient.
enum class BandwidthConvention { kBusbw, kMessage, kRingEpoch, kTotalVolume };
inline constexpr std::array<std::string_view, 4> kConventionNames = {"busbw", "message",
                                                                     "ring-epoch", "total-volume"};

/// What a convention is computed from: one epoch, or any other number of iterations.
struct EpochCommunication {
  double message_bytes = kNotMeasured;  ///< S: the gradient bytes of one rank in one iteration
  double ranks = kNotMeasured;
  double iterations = kNotMeasured;
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

/// Predicted time of one all-reduce of S bytes over n ranks; 0 s for one rank.
/// (S/B) · log2 n: a tree that passes the whole message on in every round.
double allreduce_tree_s(double bytes, double bandwidth_bytes_per_s, double ranks);
/// 2(n − 1)/n · S/B: the ring, latency left out.
double allreduce_ring_s(double bytes, double bandwidth_bytes_per_s, double ranks);

}  // namespace gradsync::report
