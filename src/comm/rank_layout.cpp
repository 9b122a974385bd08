#include "comm/rank_layout.h"

#include <array>

#include "support/fast_network.h"

namespace gradsync {

RankLayout rank_layout(const Session& session) {
  int nodes = session.local_rank() == 0;
  const auto watched = session.control(CollectiveKind::kAllReduce, sizeof nodes);
  MPI_Allreduce(MPI_IN_PLACE, &nodes, 1, MPI_INT, MPI_SUM, session.world());
  std::array<int, 2> fewest{session.local_size(), has_fast_network()};
  MPI_Allreduce(MPI_IN_PLACE, fewest.data(), 2, MPI_INT, MPI_MIN, session.world());
  session.count(CollectiveKind::kAllReduce, sizeof fewest);
  return {nodes, fewest[0], fewest[1] != 0};
}

}  // namespace gradsync
