#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "stats/statistics.h"

/// Time against size of a collective, as calibration measured it: R. W. Hockney, "The communication
/// challenge for MPP" (1994). Sizes in bytes, times in seconds, one pair a size, in any order.
/// A pair counts where both are finite, the size is not negative and the time is positive.
namespace gradsync {

/// t(s) = α + β·s.
struct AlphaBeta {
  double alpha_s = Statistics::kNone;
  double beta_s_per_byte = Statistics::kNone;
  std::size_t count = 0;          ///< pairs that it rests on; with 2 it fits exactly
  std::vector<double> residuals;  ///< (α + β·s − t)/t of each pair given; NaN where left out
  double residual_rms = Statistics::kNone;      ///< √(Σ residual² / count)
  double residual_largest = Statistics::kNone;  ///< largest |residual|

  double time_s(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Least squares on the relative residuals, so that the small sizes, which show α, weigh as much as
/// the large ones, which show β: minimizes Σ ((α + β·s − t)/t)². NaN with fewer than two sizes.
/// α or β may come out negative where the times are not of this form; nothing is clipped.
/// Throws Error kInternal unless there are as many times as sizes.
AlphaBeta fit_alpha_beta(std::span<const double> bytes, std::span<const double> times_s);

/// The bandwidth of large messages: the median of the bandwidths at the three largest sizes (of all
/// where there are fewer). NaN without any. `bandwidths` may be algbw or busbw.
double plateau(std::span<const double> bytes, std::span<const double> bandwidths);

/// Hockney's n½ as measured: the smallest size at which the bandwidth reaches half of the plateau,
/// interpolated between the sizes measured (log size against bandwidth). NaN where the smallest
/// size already is above it, since n½ then lies below what was measured.
double half_bandwidth_bytes(std::span<const double> bytes, std::span<const double> bandwidths);

}  // namespace gradsync
