#pragma once

#include "comm/session.h"
#include "machine/event_ring.h"
#include "transport/transport.h"

namespace gradsync {

/// Between two looks at an event: a short sleep, or nothing, where the moment itself is measured.
enum class Look { kPausing, kSpinning };

/// Returns when the device has come to `mark`: looks at its event again and again instead of
/// waiting in the runtime, lets MPI make progress meanwhile, and ends the job, as a hang, when
/// `transport` has lost a rank. Never returns once the transport is abandoned: the events that
/// happen then say nothing.
void await_device(EventRing& ring, Mark mark, Transport& transport, const Session& session,
                  Look look = Look::kPausing);

}  // namespace gradsync
