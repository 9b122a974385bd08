#include "base/memory.h"
#include "machine/device.h"
#include "machine/kernels.h"
#include "train/rank_device.h"

#if GRADSYNC_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace gradsync {

RankDevice::RankDevice(const Session& session, const DeviceRequest& request)
    : gpu_(agree_on_gpus(session, request)) {
  if (gpu_.choice.cuda) session.together([&] { open(gpu_.index); });
}

#if GRADSYNC_WITH_CUDA

namespace {

/// Less than an eighth of the device is left, with what LibTorch holds and does not use.
bool nearly_full() try {
  std::size_t free = 0, all = 0;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) return false;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  const auto unused = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
  return 8 * (free + static_cast<std::size_t>(unused)) < all;
} catch (...) {
  return false;
}

}  // namespace

void RankDevice::open(int index) {
  torch_ = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  device_ = make_cuda_device(index);
  c10::cuda::set_device(torch_.index());
  // Of the pool, not the default one: only such a stream can be captured.
  const auto compute = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, torch_.index());
  c10::cuda::setCurrentCUDAStream(compute);
  ring_ = std::make_unique<EventRing>(*device_);
  lane_ = std::make_unique<DeviceLane>(DeviceLane{*device_,
                                                  *ring_,
                                                  compute.stream(),
                                                  device_->make_stream(),
                                                  {launch_pack, launch_unpack, launch_lowest_bad}});
  ask_device_memory(nearly_full);
}

std::int64_t peak_device_bytes(const torch::Device& device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].peak;
}

void reset_peak_device_bytes(const torch::Device& device) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
}

#else

void RankDevice::open(int index) {
  device_ = make_cuda_device(index);  // refuses
}

std::int64_t peak_device_bytes(const torch::Device&) {
  return 0;
}

void reset_peak_device_bytes(const torch::Device&) {}

#endif

RankDevice::~RankDevice() {
  ask_device_memory(nullptr);
  if (lane_) device_->free_stream(lane_->communication);
}

}  // namespace gradsync
