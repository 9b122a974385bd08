#pragma once

#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// The GPUs of one rank.
struct GpuFacts {
  int local_rank = 0;
  std::string driver;              ///< highest CUDA version it supports, or "none"
  std::vector<std::string> names;  ///< of the visible ones
  std::vector<std::string> uuids;  ///< of the same
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, local_rank, driver, names, uuids)

/// The device a rank drives (gpu_index); -1 if there is none for it.
int chosen_gpu(const GpuFacts& facts, bool may_share = false);

std::vector<Finding> judge_gpus(const Ranks<GpuFacts>& ranks, const CheckOptions& options);

/// Whether every rank has a GPU of its own, and all have the same kind.
CheckResult check_gpus(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
