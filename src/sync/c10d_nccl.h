#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "exchange/exchange.h"

namespace gradsync {

/// LibTorch's own NCCL backend for `device`, each all-reduce of which passes through the exchange:
/// compared, watched, counted, and timed from when its data was ready and the one before it was
/// over. The ranks find each other by a store on rank 0's host. Throws Error kEnvironment in a
/// build without NCCL. Collective.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(Exchange& exchange, const at::Device& device);

}  // namespace gradsync
