#pragma once

#include <cstdint>

#include "base/half.h"
#include "machine/event_ring.h"

namespace gradsync {

/// What the exchange and its checks compute in the device's memory, in the order of a stream: the
/// launches of the kernels, or their CPU reference implementations, where the tests use a simulated
/// device.
struct DeviceKernels {
  void (*pack)(const float* values, std::uint16_t* wire, std::int64_t count, float factor,
               HalfType type, StreamHandle stream) = nullptr;
  void (*unpack)(const std::uint16_t* wire, float* values, std::int64_t count, float factor,
                 HalfType type, StreamHandle stream) = nullptr;
  void (*lowest_bad)(const float* values, std::int64_t count, unsigned long long* lowest,
                     StreamHandle stream) = nullptr;
};

/// The device of one rank: where it computes, where it communicates beside that, and the ring that
/// times both.
struct DeviceLane {
  Device& device;
  EventRing& ring;
  StreamHandle compute = nullptr, communication = nullptr;
  DeviceKernels kernels = {};
};

}  // namespace gradsync
