#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

inline constexpr std::int64_t kUnlimited = -1;

/// What the system and the environment allow one rank.
struct LimitFacts {
  std::int64_t locked_bytes = kUnlimited;  ///< ulimit -l
  std::int64_t open_files = kUnlimited;    ///< ulimit -n
  bool infiniband = false;                 ///< the host has such a device
  std::string omp_threads;                 ///< OMP_NUM_THREADS, or empty
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitFacts, locked_bytes, open_files, infiniband, omp_threads)

std::vector<Finding> judge_limits(const Ranks<LimitFacts>& ranks, const CheckOptions& options);

/// Whether limits and variables that silently slow or break a run are as they should be.
CheckResult check_limits(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
