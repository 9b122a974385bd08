#include "record/ledger.h"

namespace gradsync {

LinkBytes link_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root) {
  if (ranks == 1) return {};
  const std::int64_t others = (ranks - 1) * bytes;
  const bool here = rank == root;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * others / ranks, 2 * others / ranks};
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return here ? LinkBytes{others, 0} : LinkBytes{0, bytes};
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return here ? LinkBytes{0, others} : LinkBytes{bytes, 0};
    case CollectiveKind::kAllGather:
      return {others, others};
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

void Ledger::add(Traffic category, LinkBytes bytes) {
  const auto at = static_cast<std::size_t>(category);
  total_.sent_bytes[at] += bytes.sent;
  total_.received_bytes[at] += bytes.received;
  ++total_.calls[at];
}

}  // namespace gradsync
