#pragma once

#include <memory>

#include "machine/device.h"

namespace gradsync {

/// The CUDA device of this index, among the visible ones. Throws Error kEnvironment in a build
/// without CUDA and where the device cannot be used. Makes the device's context.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace gradsync
