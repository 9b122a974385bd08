#pragma once

#include "device/event_ring.h"

namespace gradsync {

/// The device of one rank: where it computes, where it communicates beside that, and the ring that
/// times both.
struct DeviceLane {
  Device& device;
  EventRing& ring;
  StreamHandle compute = nullptr, communication = nullptr;
};

}  // namespace gradsync
