#pragma once

#include "algorithms/transport.h"
#include "comm/session.h"
#include "device/event_ring.h"

namespace gradsync {

/// Returns when the device has come to `mark`: looks at its event again and again instead of
/// waiting in the runtime, lets MPI go on meanwhile, and ends the job, as a hang, when the
/// transport has lost a rank.
void await_device(EventRing& ring, Mark mark, Transport& transport, const Session& session);

}  // namespace gradsync
