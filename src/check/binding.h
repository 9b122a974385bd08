#pragma once

#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// Where one rank may compute.
struct BindingFacts {
  std::string cores;       ///< as the kernel lists them: "0-3,8"
  int cores_of_host = 1;   ///< that are online
  int asked_of_slurm = 0;  ///< --cpus-per-task; 0: not asked
  bool in_slurm_job = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BindingFacts, cores, cores_of_host, asked_of_slurm, in_slurm_job)

/// "0-3,8" as 0, 1, 2, 3, 8.
std::vector<int> core_numbers(const std::string& list);

std::vector<Finding> judge_binding(const Ranks<BindingFacts>& ranks, const CheckOptions& options);

/// Whether each rank has the cores its threads need, to itself.
CheckResult check_binding(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
