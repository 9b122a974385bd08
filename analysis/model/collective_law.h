#pragma once

#include <map>
#include <span>
#include <vector>

#include "record/run.h"
#include "stats/statistics.h"

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

/// How the cost of a collective grows with n ranks: t(S, n) = α · steps(n) + β · share(n) · S, with
/// α the time of one step (latency) and β the time of one byte on a link (1/bandwidth).
///
///   all-reduce (ring)             steps 2(n − 1)   share 2(n − 1)/n
///   gather, scatter, all-gather   steps n − 1      share n − 1
///   broadcast, reduce (tree)      steps log2 n     share log2 n
///   barrier                       steps log2 n     share 0
///
/// (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
/// MPICH", 2005.) One rank: 0 of both.
struct LawFactors {
  double steps = 0, share = 0;
};
LawFactors law_factors(CollectiveKind kind, double ranks);

/// α (first) and β (second) of each kind that was fitted.
using CollectiveLaws = std::map<CollectiveKind, TwoTermFit>;

/// t(S, n) in seconds; 0 for one rank, NaN where the kind was not fitted.
double collective_s(const CollectiveLaws& laws, CollectiveKind kind, double bytes, double ranks);

}  // namespace gradsync::report
