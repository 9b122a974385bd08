#pragma once

#include <map>

#include "analysis/model/two_term_fit.h"
#include "record/run.h"

namespace gradsync::report {

/// How the cost of a collective grows with n ranks: t(S, n) = α · steps(n) + β · share(n) · S, with
/// α the time of one step (latency) and β the time of one byte on a link (1/bandwidth).
///
///   all-reduce (ring)             steps 2(n − 1)   share 2(n − 1)/n
///   gather, scatter, all-gather   steps n − 1      share n − 1
///   broadcast, reduce (tree)      steps log2 n     share log2 n
///   barrier                       steps log2 n     share 0
///
/// (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
/// MPICH", 2005.) One rank: 0 of both.
struct LawFactors {
  double steps = 0, share = 0;
};
LawFactors law_factors(CollectiveKind kind, double ranks);

/// α (first) and β (second) of each kind that was fitted.
using CollectiveLaws = std::map<CollectiveKind, TwoTermFit>;

/// t(S, n) in seconds; 0 for one rank, NaN where the kind was not fitted.
double collective_s(const CollectiveLaws& laws, CollectiveKind kind, double bytes, double ranks);

}  // namespace gradsync::report
