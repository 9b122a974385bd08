#pragma once

#include <span>
#include <vector>

#include "timing/statistics.h"

namespace gradsync::report {

/// One measurement of y ≈ p·u + q·v, with y > 0.
struct TwoTermPoint {
  double u = 0, v = 0, y = 0;
};

/// Whether a point counts: all finite, y positive.
bool usable(const TwoTermPoint& point);

/// y = first·u + second·v. NaN coefficients: the points do not determine them.
struct TwoTermFit {
  double first = Statistics::kNone, second = Statistics::kNone;
  bool constrained = false;  ///< a negative coefficient was set to 0 and the other fitted alone
  std::size_t points = 0;    ///< finite ones that were used
  std::vector<double> residuals = {};  ///< of the points used: measured / fitted − 1
  double at(double u, double v) const { return first * u + second * v; }
  bool usable() const;
  /// Root mean square of fitted / measured − 1, which the fit makes least; NaN without points.
  double relative_rms() const;
};

/// Least squares on relative residuals (each point weighs 1/y², so that a message of 1 KiB counts
/// as much as one of 64 MiB), coefficients not negative: costs and times are none. Points that are
/// not finite or not positive are left out. Not usable below two points that are linearly
/// independent.
TwoTermFit fit_two_terms(std::span<const TwoTermPoint> points);

}  // namespace gradsync::report
