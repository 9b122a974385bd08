#include "analysis/model/run_study.h"

namespace gradsync::report {

const std::vector<MeasuredCell>& RunStudy::cells() const {
  if (!cells_) cells_ = measured_cells(set_);
  return *cells_;
}

const StudyFacts& RunStudy::facts() const {
  if (!facts_) facts_ = study_facts(cells());
  return *facts_;
}

}  // namespace gradsync::report
