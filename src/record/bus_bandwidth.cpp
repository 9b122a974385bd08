#include "record/bus_bandwidth.h"

namespace gradsync {

namespace {

/// n, where something crosses a link.
double several(double ranks) {
  return ranks > 1 ? ranks : kNotMeasured;
}

}  // namespace

double message_bytes(CollectiveKind kind, double payload_bytes, double ranks) {
  const bool total_over_ranks = kind == CollectiveKind::kGather ||
                                kind == CollectiveKind::kScatter ||
                                kind == CollectiveKind::kAllGather;
  return total_over_ranks ? ranks * payload_bytes : payload_bytes;
}

double algbw(double bytes, double time_s) {
  return bytes / positive(time_s);
}

double busbw_factor(CollectiveKind kind, double ranks) {
  const double n = several(ranks);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllGather:
      return (n - 1) / n;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return n / n;  // 1, NaN for one rank
    case CollectiveKind::kBarrier:
      break;
  }
  return kNotMeasured;
}

double busbw(CollectiveKind kind, double payload_bytes, double ranks, double time_s) {
  return algbw(message_bytes(kind, payload_bytes, ranks), time_s) * busbw_factor(kind, ranks);
}

}  // namespace gradsync
