#include <chrono>
#include <thread>

#include "exchange/await_device.h"

namespace gradsync {

namespace {

/// Between two looks at an event that has not happened.
constexpr auto kLookPause = std::chrono::microseconds(20);

}  // namespace

void await_device(EventRing& ring, Mark mark, Transport& transport, const Session& session,
                  Look look) {
  for (;;) {
    const bool happened = ring.happened(mark);
    if (transport.abandoned()) session.wait_for_abort();
    if (happened) return;
    const std::string why = transport.lost();
    if (!why.empty()) session.end_as_lost(why);
    // Messages of other ranks make progress only while this rank calls MPI.
    int arrived = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, session.world(), &arrived, MPI_STATUS_IGNORE);
    if (look == Look::kPausing) std::this_thread::sleep_for(kLookPause);
  }
}

}  // namespace gradsync
