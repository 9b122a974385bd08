#pragma once

#include "comm/session.h"
#include "options/transport_choice.h"

namespace gradsync {

/// Where the ranks of the session are, by the launcher's nodes. Collective; the same on all ranks.
RankLayout rank_layout(const Session& session);

}  // namespace gradsync
