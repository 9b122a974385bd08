#pragma once

#include <vector>

#include "comm/session.h"
#include "record/run.h"

namespace gradsync {

/// Ends the job with kRanksDisagree, naming both ranks and both values, unless every rank states
/// the same values under the same names. Collective.
void require_agreement(const Session& session, const std::vector<NamedText>& stated);

}  // namespace gradsync
