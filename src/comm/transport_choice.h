#pragma once

#include <string>

#include "device/choice.h"

namespace gradsync {

/// What moves the tensors between the ranks, and why.
struct TransportChoice {
  std::string name;  ///< mpi | nccl
  std::string why;
};

/// `requested` is --transport: auto, mpi or nccl. `auto` takes nccl where every rank has a GPU of
/// its own. Throws Error kEnvironment for nccl without GPUs.
TransportChoice choose_transport(const std::string& requested, const DeviceChoice& device);

}  // namespace gradsync
