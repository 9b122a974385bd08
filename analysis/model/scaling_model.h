#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "analysis/model/cell_facts.h"
#include "analysis/model/collective_law.h"
#include "analysis/read/curve_file.h"

/// The scaling model: T(n, b) = compute(b) + exposed(n, b) + wait(n, b) + other, of one family of
/// cells (one network, one mode, one setting), n ranks and b images per rank.
///
///   compute   a + c·b, fitted to the cells' median compute without what the exchange took from it;
///             with one batch only, the optimizer's time is taken as constant and the rest as
///             proportional to b; and what the exchange takes from it in the replay
///   exposed   the recorded ready times, stretched with compute, replayed on one channel with
///             t(S, n) = α·steps(n) + β·share(n)·S (collective_law.h)
///   wait      compute(b) · (q − 1) with q the 0.5^(1/n) quantile of the recorded compute times
///   over
///             their median: the median of the slowest of n ranks that are slow independently
///   other     median over the cells of what is neither compute nor exposed
namespace gradsync::report {

/// α and β of one kind of collective, and where they come from.
struct LawEntry {
  TwoTermFit fit;
  std::vector<TwoTermPoint> points;
  std::string source;  ///< "calibration (ring, isolated)" or "measured in training"
  bool calibrated = false;
};

/// compute(b) = constant_s + per_image_s · b.
struct ComputeLaw {
  TwoTermFit fit;  ///< first: constant, second: per image
  bool one_batch = false;
  std::size_t cells = 0;
  double at(double batch) const { return fit.at(1, batch); }
};

struct CellPoint {
  const CellFacts* facts = nullptr;
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
  /// The laws times the slowdown.
  CollectiveLaws effective;
  /// What a byte that travels beside compute takes from it: contention_s over the bytes that do,
  /// median over the cells that measured it; 0 where none did, and compute is taken as recorded.
  double contention_s_per_byte = 0;
  /// For one rank and for several: see compute_law.
  std::array<ComputeLaw, 2> compute;
  std::array<double, 2> other_s = {kNotMeasured, kNotMeasured};
  std::string missing;  ///< why a kind that the family uses has no law; empty if none lacks
};

struct Prediction {
  double compute_s = kNotMeasured, exposed_s = kNotMeasured;
  double wait_s = kNotMeasured, other_s = kNotMeasured;
  double total_s() const { return compute_s + exposed_s + wait_s + other_s; }
};

using FamilyCells = std::vector<const CellFacts*>;

/// Fits a family. Laws come from calibration of the transport that its runs used (calibrated_as;
/// isolated before back-to-back), kind by kind; where there is none, from the family's own
/// collectives, if their sizes or ranks differ enough to tell α from β.
FamilyFit fit_family(const FamilyCells& cells, const std::vector<CalibrationPoint>& calibration);

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
  const CellFacts* from = nullptr;
  BucketProfile profile;
};
Exchanged exchange_at(const FamilyFit& fit, double ranks, double batch);

/// Replays a profile in the way of the mode. What overlaps takes `contention_s_per_byte` from
/// compute.
BucketReplay replay(const BucketProfile& profile, bool overlapped, const CollectiveLaws& laws,
                    double ranks, double contention_s_per_byte);

/// Training's collectives over what `laws` say, median over the cells on several ranks; 1 where
/// none of them exchanged or a law is missing.
double slowdown_over(const FamilyFit& fit, const CollectiveLaws& laws);

/// The cells of each family, in order of their first, without cells of --batch-schedule.
std::vector<FamilyCells> families(const StudyFacts& study);

/// Calibration without that of some cells of the study.
std::vector<CalibrationPoint> calibration_without(const StudyFacts& study,
                                                  const FamilyCells& without);

/// The law of one kind of collective for a family: see fit_family. Its fit is not usable where
/// neither calibration nor the collectives in training determine it.
LawEntry choose_law(CollectiveKind kind, const FamilyCells& cells,
                    const std::vector<CalibrationPoint>& calibration);

/// The law of curves that are not of the family's own network: of the transport that resembles the
/// family's most (calibrated_as), else of the first. Not usable where they do not determine it.
LawEntry law_of_curves(CollectiveKind kind, const FamilyCells& cells,
                       const std::vector<Curves>& curves, const std::string& file);

}  // namespace gradsync::report
