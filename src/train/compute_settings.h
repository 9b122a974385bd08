#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "comm/places.h"
#include "comm/session.h"
#include "data/augment.h"
#include "train/options.h"

namespace gradsync {

/// How a rank computes: settled once at start, equal on all ranks, recorded.
struct ComputeSettings {
  bool bf16 = false;  ///< autocast to bfloat16
  Layout layout = Layout::kNhwc;
  std::int64_t threads = 1;
  torch::Device device = torch::kCPU;
  std::vector<std::string> probed;  ///< what `auto` measured, one line each
  std::vector<std::string> warnings;
};

/// Sets LibTorch's threads and settles precision and layout; `auto` times a few steps of the run's
/// own network in each combination on all ranks at once and takes the fastest by rank 0's median.
/// Collective.
ComputeSettings settle_compute(const Session& session, const TrainOptions& options,
                               const torch::Device& device = torch::kCPU);

/// Autocast to bfloat16 while it lives, if asked for; drops the cast cache at its end.
class AutocastScope {
 public:
  explicit AutocastScope(bool bf16, torch::DeviceType device = torch::kCPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  torch::DeviceType device_;
};

}  // namespace gradsync
