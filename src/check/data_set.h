#pragma once

#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// The data set as the first rank of a host reads it; the other ranks state nothing.
struct DataFacts {
  bool looked = false;
  std::string error, fix;  ///< why it cannot be used, and what to do; empty if it can
  std::string name;        ///< "CIFAR-10 (official)"
  std::string digest;      ///< SHA-256 of all files
  long images = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DataFacts, looked, error, fix, name, digest, images)

std::vector<Finding> judge_data(const Ranks<DataFacts>& ranks, const CheckOptions& options);

/// Whether every host has the data set, whole, and all have the same. Reads every byte once a host.
CheckResult check_data(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
