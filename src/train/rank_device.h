#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "comm/places.h"
#include "comm/session.h"
#include "machine/lane.h"

namespace gradsync {

/// The device this rank computes on, with its streams and its ring of events.
class RankDevice {
 public:
  /// Takes the device that all ranks agree on, and on a GPU makes the stream that this thread
  /// computes on from now on: whatever is built later lies on it. Throws as choose_device does, one
  /// message for the job. Collective.
  RankDevice(const Session& session, const DeviceRequest& request);
  ~RankDevice();
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  const DeviceChoice& choice() const { return gpu_.choice; }
  torch::Device torch() const { return torch_; }
  /// Null on the CPU.
  DeviceLane* lane() { return lane_.get(); }
  /// Name and UUID, for the run file.
  const GpuDevice& description() const { return gpu_.description; }

 private:
  void open(int index);

  RankGpu gpu_;
  torch::Device torch_ = torch::kCPU;
  std::unique_ptr<Device> device_;
  std::unique_ptr<EventRing> ring_;
  std::unique_ptr<DeviceLane> lane_;
};

/// Most bytes of a GPU's memory that tensors of this process have taken at once since the last
/// reset; not what the allocator keeps beside them.
std::int64_t peak_device_bytes(const torch::Device& device);
void reset_peak_device_bytes(const torch::Device& device);

}  // namespace gradsync
