#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/lane.h"

namespace gradsync::calibrate {

/// The values of one rank as an operation moves them: in host memory, or in that of its device,
/// where they are sent after they were filled and fetched from before they are read.
class OperationData {
 public:
  /// `lane` is null for host memory; it must outlive this. `memory` is the transport's own, of room
  /// for `count` values, where it has any.
  OperationData(std::size_t count, DeviceLane* lane, std::shared_ptr<std::byte> memory = {});
  ~OperationData();
  OperationData(const OperationData&) = delete;
  OperationData& operator=(const OperationData&) = delete;

  bool empty() const { return host_.empty(); }
  /// What is filled before `send` and read after `fetch`.
  std::span<float> host() { return host_; }
  std::span<const float> host() const { return host_; }
  /// What a transport moves.
  std::span<float> moved();

  /// Both return when the copy is done.
  void send();
  void fetch() const;

 private:
  void copy(void* to, const void* from) const;

  DeviceLane* lane_;
  std::vector<float> own_;
  std::shared_ptr<std::byte> memory_;
  std::span<float> host_;
  float* device_ = nullptr;
};

}  // namespace gradsync::calibrate
