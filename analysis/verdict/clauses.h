// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/experiments.h"
#include "analysis/model/doubt.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/study.h"
#include "analysis/verdict/verdict.h"
#include "stats/estimate.h"

/// What the questions of the verdict share; questions.def lists them.
namespace gradsync::report {

/// What the questions are asked of: a RunStudy, and what several questions derive from it.
struct VerdictInput {
  const RunSet& set;
  const std::vector<StudyCell>& cells;
  RunSpreads spreads;                          ///< of every model
  const std::vector<Experiment>& experiments;  ///< jobs of --compare
};

/// One of verdict_sentences() and its text.
struct Answer {
  std::string_view sentence;
  std::string text;
};

using Clauses = std::vector<VerdictClause>;

#define GRADSYNC_QUESTION(id, ...) Clauses id##_clauses(const VerdictInput& input);
#include "analysis/verdict/questions.def"
#undef GRADSYNC_QUESTION

/// What the verdict concludes from about a model: the cells of the family of mode ddp if there is
/// one, else of the family with most cells that exchanges at all, else of the largest. Never ones
/// that were short of cores; a model that has no others has no focus.
struct Focus {
  Cells family;
  Cells top;  ///< those on most ranks above one, by batch per rank; empty if all have one
};
std::vector<Focus> focus(const VerdictInput& input);

/// A clause that rests on the runs of `cells`; `sentence` is one of verdict_sentences(). What rests
/// on communication of runs in which it contains waiting for late ranks ends with that reservation.
VerdictClause clause_of(std::string_view sentence, std::string text, const Cells& cells,
                        std::string datasets, std::string condition);

/// A clause that rests on all contenders of an experiment.
VerdictClause clause_of(std::string_view sentence, std::string text, const Experiment& experiment,
                        std::string datasets);

/// The experiment with a network that the verdict concludes from: that on most ranks. Null where
/// there is none. Of ranks that wait for a core as well: that is in all of its contenders.
const Experiment* experiment_of(const VerdictInput& input, const std::string& model);

/// An iteration of a cell over the one without an exchange, from the experiment with its network or
/// from separate jobs; NaN where there is none.
Estimate cost_ratio(const VerdictInput& input, const StudyCell& cell);
/// "1.200 (1.150 to 1.250)", or "1.200" where the ratio has no interval.
std::string ratio_text(const Estimate& ratio);

/// A clause that names the run to make, for one network or for all runs.
VerdictClause missing_clause(std::string_view sentence, std::string text,
                             const std::string& network = {});

/// "ddp at 4 ranks with 32 images per rank".
std::string setting_text(const StudyCell& cell);

/// 0.614 as "61 %", 0.0234 as "2.3 %", 0.0004 as "0.04 %".
std::string percent_text(double share);

/// " (58 % to 63 %)", or " (no interval without repeats)".
std::string interval_text(const Estimate& share);

/// What is less of an iteration is not worth an advice.
inline constexpr double kWorthSaying = 0.01;

/// A cause is named where it accounts for at least this part of a loss.
inline constexpr double kMainCause = 0.5;

}  // namespace gradsync::report
