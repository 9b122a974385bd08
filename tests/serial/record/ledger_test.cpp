#include "record/ledger.h"

#include <doctest/doctest.h>

using namespace gradsync;

TEST_CASE("ledger: what each kind moves over the link of a rank") {
  using enum CollectiveKind;
  // 4 ranks, 100 bytes each: ring 2·3/4·100 each way; rooted 3·100 at the root, 100 elsewhere.
  CHECK(link_bytes(kAllReduce, 100, 2, 4, -1) == LinkBytes{150, 150});
  CHECK(link_bytes(kBroadcast, 100, 0, 4, 0) == LinkBytes{300, 0});
  CHECK(link_bytes(kBroadcast, 100, 3, 4, 0) == LinkBytes{0, 100});
  CHECK(link_bytes(kScatter, 100, 1, 4, 1) == LinkBytes{300, 0});
  CHECK(link_bytes(kGather, 100, 0, 4, 0) == LinkBytes{0, 300});
  CHECK(link_bytes(kGather, 100, 1, 4, 0) == LinkBytes{100, 0});
  CHECK(link_bytes(kReduce, 100, 0, 4, 0) == LinkBytes{0, 300});
  CHECK(link_bytes(kAllGather, 100, 0, 4, -1) == LinkBytes{300, 300});
  CHECK(link_bytes(kBarrier, 0, 0, 4, -1) == LinkBytes{0, 0});
}

TEST_CASE("ledger: all that is sent is received, whatever the kind and the ranks") {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (std::size_t kind = 0; kind < kCollectiveNames.size(); ++kind) {
      LinkBytes sum;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto one = link_bytes(static_cast<CollectiveKind>(kind), 240, rank, ranks, 0);
        sum.sent += one.sent;
        sum.received += one.received;
      }
      CHECK_MESSAGE(sum.sent == sum.received, kCollectiveNames[kind]);
      CHECK((ranks > 1 || sum.sent == 0));
    }
}

TEST_CASE("ledger: adds up by category") {
  Ledger ledger;
  ledger.add(Traffic::kGradients, {10, 20});
  ledger.add(Traffic::kGradients, {1, 2});
  ledger.add(Traffic::kCheckpoint, {0, 7});
  CHECK(ledger.total().sent_bytes[0] == 11);
  CHECK(ledger.total().received_bytes[0] == 22);
  CHECK(ledger.total().calls[0] == 2);
  CHECK(ledger.total().received_bytes[7] == 7);
  CHECK(ledger.total().calls[1] == 0);
}
