#pragma once

#include "analysis/model/scaling_model.h"

namespace gradsync::report {

/// The law of one kind of collective for a family: see fit_family. Its fit is not usable where
/// neither calibration nor the collectives in training determine it.
LawEntry choose_law(CollectiveKind kind, const FamilyCells& cells,
                    const std::vector<CalibrationPoint>& calibration);

}  // namespace gradsync::report
