#pragma once

#include <string>

#include "analysis/published/audit.h"
#include "analysis/published/page.h"

namespace gradsync::report::published {

/// What was found, report by report: how each column was made, which values differ, what cannot be.
Page audit_page(const Study& study, const Audit& audit);

/// "from epoch_time of table speedup, 50,000 images, S = ...": what a fit rests on.
std::string constants_text(const Fit& fit);

}  // namespace gradsync::report::published
