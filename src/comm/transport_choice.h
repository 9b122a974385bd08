#pragma once

#include <string>
#include <vector>

#include "device/choice.h"

namespace gradsync {

/// What moves the tensors between the ranks, and why.
struct TransportChoice {
  std::string name;  ///< mpi | nccl | shm | ring | two-level
  std::string why;
};

/// Values of --transport, in the order of --help.
const std::vector<std::string>& transport_names();

/// What --help says of them.
std::string transport_help();

/// `requested` is --transport. `auto` takes nccl where every rank has a GPU of its own, else mpi.
/// Throws Error kEnvironment for nccl without GPUs, for transports of host memory with them, and
/// for shm where the ranks are not all on one node.
TransportChoice choose_transport(const std::string& requested, const DeviceChoice& device,
                                 bool one_node);

}  // namespace gradsync
