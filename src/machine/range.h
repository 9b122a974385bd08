#pragma once

#include <cstdint>
#include <string_view>

#include "machine/lane.h"

namespace gradsync {

/// While it lives, a profiler that is attached shows what this thread does under a name (Nsight
/// Systems: a range of NVTX, and in its row of the GPU the kernels launched in it). Ends on the
/// thread it began on. Nothing without a lane.
class ProfilerRange {
 public:
  /// `name` is a literal. The lane's device must outlive the range.
  ProfilerRange(DeviceLane* lane, std::string_view name, std::int64_t value = 0)
      : device_(lane ? &lane->device : nullptr) {
    if (device_) device_->begin_range(name, value);
  }
  ~ProfilerRange() {
    if (device_) device_->end_range();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  Device* device_;
};

}  // namespace gradsync
