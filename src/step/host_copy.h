#pragma once

#include <torch/types.h>

namespace gradsync {

/// A copy in host memory, which the device fills when its stream comes by: the host does not wait.
/// Of a tensor on the CPU a copy at once.
inline torch::Tensor to_host(const torch::Tensor& values) {
  const bool cuda = values.is_cuda();
  torch::Tensor copy =
      torch::empty(values.sizes(), values.options().device(torch::kCPU).pinned_memory(cuda));
  copy.copy_(values, /*non_blocking=*/cuda);
  return copy;
}

}  // namespace gradsync
