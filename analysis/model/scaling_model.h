// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "analysis/model/study.h"
#include "analysis/read/curve_file.h"
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

// The scaling model: T(n, b) = compute(b) + exposed(n, b) + wait(n, b) + other, of one family of
// cells (one network, one mode, one setting), n ranks and b images per rank.
//
//   compute   a + c·b, fitted to the cells' median compute without what the exchange took from it;
//             with one batch only, the optimizer's time is taken as constant and the rest as
//             proportional to b; and what the exchange takes from it in the replay
//   exposed   the recorded ready times, stretched with compute, replayed on one channel with
//             t(S, n) = α·steps(n) + β·share(n)·S (law_factors)
//   wait      compute(b) · (q − 1) with q the 0.5^(1/n) quantile of the recorded compute times
//   over
//             their median: the median of the slowest of n ranks that are slow independently
//   other     median over the cells of what is neither compute nor exposed

/// α and β of one kind of collective, and where they come from.
struct LawEntry {
  TwoTermFit fit;
  std::vector<TwoTermPoint> points;
  std::string source;  ///< "calibration (ring, isolated)" or "measured in training"
  bool calibrated = false;
  bool borrowed = false;  ///< of another kind: see borrowed_law
};

/// compute(b) = constant_s + per_image_s · b.
struct ComputeLaw {
  TwoTermFit fit;  ///< first: constant, second: per image
  bool one_batch = false;
  std::size_t cells = 0;
  double at(double batch) const { return fit.at(1, batch); }
};

struct CellPoint {
  const StudyCell* cell = nullptr;
  CellMedians medians;
  /// Compute and the exchange as they would be if compute were left alone (contention_s_per_byte of
  /// the fit).
  double alone_s = kNotMeasured;
  BucketProfile profile = {};
};

struct FamilyFit {
  std::vector<CellPoint> cells;
  std::map<CollectiveKind, LawEntry> laws;
  /// Training's collectives over calibrated ones, Σ measured / Σ predicted, the median over the
  /// cells on several ranks: what running beside compute costs. 1 where laws come from training.
  double slowdown = 1;
  /// The laws, those of calibration times the slowdown.
  CollectiveLaws effective;
  /// What a byte that travels beside compute takes from it: contention_s over the bytes that do,
  /// median over the cells that measured it; 0 where none did, and compute is taken as recorded.
  double contention_s_per_byte = 0;
  /// For one rank and for several: see compute_law.
  std::array<ComputeLaw, 2> compute;
  std::array<double, 2> other_s = {kNotMeasured, kNotMeasured};
  std::string missing;   ///< why a kind that the family uses has no law; empty if none lacks
  std::string borrowed;  ///< which kinds have the law of another one, and why; empty if none has
};

struct Prediction {
  double compute_s = kNotMeasured, exposed_s = kNotMeasured;
  double wait_s = kNotMeasured, other_s = kNotMeasured;
  double total_s() const { return compute_s + exposed_s + wait_s + other_s; }
};

/// Fits a family. Laws come from calibration of the transport that its runs used (calibrated_as;
/// isolated before back-to-back), kind by kind; where there is none, from the family's own
/// collectives, if their sizes or ranks differ enough to tell α from β; else from another kind.
FamilyFit fit_family(const Cells& cells, const std::vector<CalibrationPoint>& calibration);

/// compute(b), left alone, for runs on `ranks` ranks: from the cells on several ranks for several
/// ranks (compute beside communication is slower), unless only all cells together hold more than
/// one batch.
const ComputeLaw& compute_law(const FamilyFit& fit, double ranks);

/// NaN in a part that the fit cannot give.
Prediction predict(const FamilyFit& fit, double ranks, double batch);

/// The median slowest of n independent ranks over the median rank, minus 1; 0 for one rank, NaN
/// without values. `imbalance` is sorted.
double expected_wait(const std::vector<double>& imbalance, double ranks);

/// The exchange of the nearest cell (in ranks, then in batch) beside compute left alone, with ready
/// times stretched to a batch. Nothing where no cell recorded one.
struct Exchanged {
  const StudyCell* from = nullptr;
  BucketProfile profile;
};
Exchanged exchange_at(const FamilyFit& fit, double ranks, double batch);

/// Replays a profile in the way of the mode. What overlaps takes `contention_s_per_byte` from
/// compute.
BucketReplay replay(const BucketProfile& profile, bool overlapped, const CollectiveLaws& laws,
                    double ranks, double contention_s_per_byte);

/// Training's collectives over what `laws` say of them, median over the cells on several ranks; 1
/// where none of them exchanged any that has a law.
double slowdown_over(const FamilyFit& fit, const CollectiveLaws& laws);

/// The law of one kind of collective for a family: see fit_family. Its fit is not usable where
/// neither calibration nor the collectives in training determine it.
LawEntry choose_law(CollectiveKind kind, const Cells& cells,
                    const std::vector<CalibrationPoint>& calibration);

/// The law of one kind of collective whose sizes do not determine it: α and β of the nearest kind
/// that has a law, with the kind's own steps and share, times what makes it fit the few sizes that
/// training has (`own`). Nearest is one that moves data alike, then all-reduce. Not usable where no
/// kind has a law.
LawEntry borrowed_law(CollectiveKind kind, const LawEntry& own, const Cells& cells,
                      const std::vector<CalibrationPoint>& calibration);

/// Part of a prediction that rests on borrowed laws.
double borrowed_share(const FamilyFit& fit, double ranks, double batch);

/// The law of curves that are not of the family's own network: of the transport that resembles the
/// family's most (calibrated_as), else of the first. Not usable where they do not determine it.
LawEntry law_of_curves(CollectiveKind kind, const Cells& cells, const std::vector<Curves>& curves,
                       const std::string& file);

}  // namespace gradsync::report
