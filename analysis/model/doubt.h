// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/model/scaling_model.h"
#include "stats/estimate.h"

/// Reasons not to trust the scaling model. Nothing is predicted from a fit with doubts.
namespace gradsync::report {

/// Above this residual a law does not describe its collectives.
inline constexpr double kLargestResidual = 0.3;
/// The largest error, predicted / measured − 1, of a cell that was left out of the fit.
inline constexpr double kLargestLeftOutError = 0.2;

/// Why laws say nothing about the link of their collectives; empty if they do.
std::string law_doubt(const std::map<CollectiveKind, LawEntry>& laws);
/// Doubt in the laws of a family, or which one is missing.
std::string law_doubt(const FamilyFit& fit);

/// A cell, and the family fitted without it and its calibration.
struct LeftOutCell {
  const StudyCell* cell = nullptr;
  FamilyFit fit;
  double error() const;  ///< predicted / measured − 1; NaN where the others do not determine it
};

/// Each cell of a family left out in turn; none of a family of one cell. `unseen`: further cells
/// whose calibration is not used.
std::vector<LeftOutCell> leave_out_each(const std::vector<StudyCell>& study, const Cells& family,
                                        const Cells& unseen = {});

/// A prediction, and around it as far as the cells left out of its fit were off: times 1 ± the
/// largest of their |measured / predicted − 1|, and further by what rests on borrowed laws, which
/// may take none or twice of it. Were a new cell one like these, it would lie within with
/// probability count / (count + 1); how often it does is measured by IntervalCoverage. count: cells
/// left out that could be predicted; NaN ends without any.
Estimate predict_interval(const FamilyFit& fit, const std::vector<LeftOutCell>& left_out,
                          double ranks, double batch);

/// How many measured cells lie within the intervals of predictions that were not fitted to them.
struct IntervalCoverage {
  std::size_t cells = 0, held = 0;
  void add(const Estimate& predicted, double measured);
  void add(const IntervalCoverage& more);
  /// "3 of 4"; "n/a" where no cell could be predicted.
  std::string text() const;
};

/// Coverage of the cells of a family on its most ranks, predicted from those on fewer ranks and
/// their calibration: what an interval is worth on more ranks than were measured. No cells where
/// those on fewer ranks do not determine the model.
IntervalCoverage coverage_on_more_ranks(const std::vector<StudyCell>& study, const Cells& family);

/// |error| of the cells left out, NaN where one cannot be predicted from the others.
struct LeftOutErrors {
  std::size_t cells = 0;
  double median = kNotMeasured, largest = kNotMeasured;
};
LeftOutErrors left_out_errors(const std::vector<LeftOutCell>& left_out);

/// Why nothing is predicted from a fit, also within the range that was measured: doubt in its laws,
/// a coefficient at its bound 0, or cells left out that the others do not predict to
/// kLargestLeftOutError. Empty if there is no reason.
std::string prediction_doubt(const FamilyFit& fit, const std::vector<LeftOutCell>& left_out);

}  // namespace gradsync::report
