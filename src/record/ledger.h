#pragma once

#include <cstdint>

#include "record/run.h"

namespace gradsync {

/// What a collective, or a message, moves over the link of one rank, in bytes.
struct LinkBytes {
  std::int64_t sent = 0, received = 0;
  bool operator==(const LinkBytes&) const = default;
};

/// By the usual algorithm of each kind, for a payload of `bytes` a rank: all-reduce (ring)
/// 2(n−1)/n·S each way; broadcast and scatter: the root sends (n−1)·S, the others receive S; reduce
/// and gather: the other way round; all-gather (n−1)·S each way; barrier and one rank 0.
LinkBytes link_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root);

/// Counts what a rank sends and receives from its start to its end, by what it is for. Not
/// thread-safe: used by the thread that talks to MPI.
class Ledger {
 public:
  void add(Traffic category, LinkBytes bytes);
  const RankTraffic& total() const { return total_; }

 private:
  RankTraffic total_;
};

}  // namespace gradsync
