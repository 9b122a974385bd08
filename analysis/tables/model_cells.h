#pragma once

#include <string>
#include <vector>

#include "analysis/model/scaling_model.h"
#include "base/table.h"

/// What the tables of the scaling model have in common.
namespace gradsync::report {

/// The files of a family's cells and of the calibration they are held against, with ", " between.
std::string family_sources(const StudyFacts& study, const FamilyCells& cells);

/// Whether a family has cells on one rank (ranks = 1) or on several (ranks > 1).
bool holds_ranks(const FamilyCells& cells, double ranks);

/// Notes that say what the model lacks: a law, or calibration. Each text once a table.
void add_missing_note(const FamilyFit& fit, Table& table);

/// A quotient whose divisor was 0 is none: NaN.
double finite_or_none(double value);

/// Milliseconds with digits for their size.
Cell ms_cell(double time_s);

}  // namespace gradsync::report
