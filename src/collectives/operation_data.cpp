#include "collectives/operation_data.h"

#include <utility>

namespace gradsync::calibrate {

OperationData::OperationData(std::size_t count, DeviceLane* lane, std::shared_ptr<std::byte> memory)
    : lane_(lane),
      own_(memory ? 0 : count),
      memory_(std::move(memory)),
      host_(memory_ ? std::span(reinterpret_cast<float*>(memory_.get()), count) : std::span(own_)) {
  if (lane_ && count > 0)
    device_ = static_cast<float*>(lane_->device.make_memory(count * sizeof(float)));
}

OperationData::~OperationData() {
  if (device_ != nullptr) lane_->device.free_memory(device_);
}

std::span<float> OperationData::moved() {
  return lane_ ? std::span(device_, host_.size()) : host_;
}

void OperationData::send() {
  copy(device_, host_.data());
}

void OperationData::fetch() const {
  copy(host_.data(), device_);
}

void OperationData::copy(void* to, const void* from) const {
  if (device_ == nullptr) return;
  lane_->device.copy(to, from, host_.size() * sizeof(float), lane_->communication);
  lane_->ring.wait_for(lane_->ring.mark(lane_->communication));
}

}  // namespace gradsync::calibrate
