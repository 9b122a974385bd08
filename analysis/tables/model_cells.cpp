#include "analysis/tables/model_cells.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/tables/run_cells.h"

namespace gradsync::report {

std::string family_sources(const StudyFacts& study, const FamilyCells& cells) {
  std::string text;
  std::set<std::string> files;
  for (const CellFacts* cell : cells) {
    text += (text.empty() ? "" : ", ") +
            study.sources[static_cast<std::size_t>(cell - study.cells.data())];
    if (!cell->calibration_file.empty()) files.insert(cell->calibration_file);
  }
  for (const std::string& file : files)
    text += ", " + file;
  return text;
}

bool holds_ranks(const FamilyCells& cells, double ranks) {
  return std::any_of(cells.begin(), cells.end(),
                     [&](const CellFacts* cell) { return (cell->ranks > 1) == (ranks > 1); });
}

namespace {

void model_cells_add_once(Table& table, const std::string& note) {
  if (std::find(table.notes.begin(), table.notes.end(), note) == table.notes.end())
    table.notes.push_back(note);
}

}  // namespace

void add_missing_note(const FamilyFit& fit, Table& table) {
  const CellFacts& first = *fit.cells.front().facts;
  if (!fit.missing.empty())
    model_cells_add_once(table, "missing: " + first.model + ", " + first.mode + ": " + fit.missing);
  const bool from_training = std::any_of(fit.laws.begin(), fit.laws.end(), [](const auto& law) {
    return law.second.fit.usable() && !law.second.calibrated;
  });
  if (from_training)
    model_cells_add_once(
        table,
        "missing: calibration of these ranks (gradsync-train --calibrate); alpha and beta are "
        "fitted to the collectives in training instead, which overlap with compute");
}

double finite_or_none(double value) {
  return std::isfinite(value) ? value : kNotMeasured;
}

Cell ms_cell(double time_s) {
  return Cell::of(finite_or_none(1e3 * time_s), ms_decimals(1e3 * time_s));
}

}  // namespace gradsync::report
