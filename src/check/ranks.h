#pragma once

#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

struct RankFacts {
  int local_rank = 0;
  std::string cores;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, local_rank, cores)

/// One row of findings and the table of hosts.
CheckResult judge_ranks(const Ranks<RankFacts>& ranks, const CheckOptions& options);

/// Whether all hosts have as many ranks as they should.
CheckResult check_ranks(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
