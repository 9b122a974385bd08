#pragma once

#include <string>
#include <vector>

#include "analysis/figures/run_group.h"
#include "analysis/plots/chart.h"
#include "record/run.h"

/// How runs look and what they are called in every plot.
namespace gradsync::report {

/// "#rrggbb"; a mode has the same color in every plot.
std::string mode_color(const std::string& mode);

/// Columns of a CSV that say which run: ranks, batch_per_rank, batch_global, mode, model, run.
std::vector<NamedText> run_keys(const Run& run);

/// The same for repeats, whose names are joined.
std::vector<NamedText> group_keys(const RunGroup& group);

/// What a number can depend on that a label may have to say.
enum class Trait { kModel, kMode, kRanks, kBatchPerRank, kBatchAlone, kBatchGlobal };

/// Labels that tell `groups` apart: of `traits` those that differ among them (the mode always, if
/// it is asked for), and what told_apart adds.
std::vector<std::string> labels_of(const std::vector<const RunGroup*>& groups,
                                   const std::vector<Trait>& traits);

/// Adds waiting_text() to the caption, where it says something.
void add_waiting_sentence(const RunSet& set, Chart& chart);

}  // namespace gradsync::report
