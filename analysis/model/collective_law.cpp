#include "analysis/model/collective_law.h"

#include <cmath>

namespace gradsync::report {

LawFactors law_factors(CollectiveKind kind, double ranks) {
  if (!(ranks > 1)) return {};
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * (ranks - 1), 2 * (ranks - 1) / ranks};
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllGather:
      return {ranks - 1, ranks - 1};
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return {std::log2(ranks), std::log2(ranks)};
    case CollectiveKind::kBarrier:
      return {std::log2(ranks), 0};
  }
  return {};
}

double collective_s(const CollectiveLaws& laws, CollectiveKind kind, double bytes, double ranks) {
  const LawFactors factors = law_factors(kind, ranks);
  if (factors.steps == 0) return 0;
  const auto law = laws.find(kind);
  if (law == laws.end()) return kNotMeasured;
  return law->second.at(factors.steps, factors.share * bytes);
}

}  // namespace gradsync::report
