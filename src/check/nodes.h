#pragma once

#include <map>
#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// A host, as its first rank finds it; the other ranks state nothing.
struct NodeFacts {
  bool looked = false;
  std::string cpu, kernel;
  std::map<std::string, int> mtu_of;  ///< bytes, by network interface; without the loopback
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, looked, cpu, kernel, mtu_of)

std::vector<Finding> judge_nodes(const Ranks<NodeFacts>& ranks);

/// Whether the hosts are of one kind.
CheckResult check_nodes(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
