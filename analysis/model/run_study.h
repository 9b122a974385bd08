#pragma once

#include <optional>
#include <vector>

#include "analysis/model/cell_facts.h"
#include "analysis/model/measured_cell.h"

namespace gradsync::report {

/// The runs of a report with what the scaling model knows of them. That is read from the files when
/// it is first asked for, and once: several tables, the verdict and a plot are made from it.
class RunStudy {
 public:
  /// Keeps a reference: `set` outlives the study. Not explicit: a function of a study takes a set
  /// of runs as well.
  RunStudy(const RunSet& set) : set_(set) {}

  const RunSet& set() const { return set_; }
  const std::vector<MeasuredCell>& cells() const;
  /// Of the cells, in their order.
  const StudyFacts& facts() const;

 private:
  const RunSet& set_;
  mutable std::optional<std::vector<MeasuredCell>> cells_;
  mutable std::optional<StudyFacts> facts_;
};

}  // namespace gradsync::report
