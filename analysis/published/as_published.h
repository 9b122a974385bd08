#pragma once

#include <vector>

#include "analysis/published/layout.h"
#include "analysis/read/run_set.h"
#include "base/table.h"

namespace gradsync::report::published {

/// The tables of a layout: what the report printed, what the runs measured, by the report's own
/// conventions, and measured / published, in the rows and columns in which the report prints a
/// number; in those in which runs have one where it prints nothing. Notes name what the audit finds
/// wrong in the published numbers and, of what is derived, in the measured ones, whose rows it
/// marks. What only one of the two has is n/a in the other. Throws Error kBadData for a published
/// file that has not what the layout names, and for a table in which two published numbers would
/// have one cell.
std::vector<Table> tables_as_published(const Layout& layout, const RunSet& set);

}  // namespace gradsync::report::published
