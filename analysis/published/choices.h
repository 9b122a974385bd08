#pragma once

#include <vector>

#include "analysis/published/expectation.h"
#include "analysis/published/search.h"

namespace gradsync::report::published {

/// Every combination of sources, base rules, messages and last batches with which a convention may
/// have made a column, the plainest first; the cost is the convention's and that of what is odd.
std::vector<Choice> choices_for(const Study& study, const DerivedColumn& column,
                                const Convention& convention, const AuditOptions& options);

/// The message sizes to try for a row's model; one without bytes if none is known.
std::vector<Message> messages_for(const Row& row, const Study& study, const AuditOptions& options);

}  // namespace gradsync::report::published
