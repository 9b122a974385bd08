#include "transport/rank_layout.h"

#include <array>

#include "algorithms/interfaces.h"
#include "support/fast_network.h"

namespace gradsync {

RankLayout rank_layout(const Session& session) {
  int nodes = session.local_rank() == 0;
  const auto watched = session.control(CollectiveKind::kAllReduce, sizeof nodes);
  MPI_Allreduce(MPI_IN_PLACE, &nodes, 1, MPI_INT, MPI_SUM, session.world());
  const bool ipv4 = !among_networks(own_addresses(), tcp_networks()).empty();
  std::array<int, 3> fewest{session.local_size(), has_fast_network(), ipv4};
  MPI_Allreduce(MPI_IN_PLACE, fewest.data(), fewest.size(), MPI_INT, MPI_MIN, session.world());
  session.count(CollectiveKind::kAllReduce, sizeof fewest);
  return {nodes, fewest[0], fewest[1] != 0, fewest[2] != 0};
}

}  // namespace gradsync
