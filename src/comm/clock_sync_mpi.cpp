#include <limits>

#include "comm/clock_sync.h"

namespace gradsync {

namespace {

constexpr int kClockTag = 11;

using Clock = std::function<double()>;

ClockOffset ask_root(MPI_Comm comm, int round_trips, const Clock& clock) {
  ClockOffset best{0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < round_trips; ++i) {
    double root_s = 0;
    const double sent_s = clock();
    MPI_Send(&sent_s, 1, MPI_DOUBLE, 0, kClockTag, comm);
    MPI_Recv(&root_s, 1, MPI_DOUBLE, 0, kClockTag, comm, MPI_STATUS_IGNORE);
    const double received_s = clock();
    const double half_s = (received_s - sent_s) / 2;
    if (half_s < best.uncertainty_s) best = {root_s - (sent_s + half_s), half_s};
  }
  return best;
}

void answer(MPI_Comm comm, int rank, int round_trips, const Clock& clock) {
  for (int i = 0; i < round_trips; ++i) {
    double theirs_s = 0;
    MPI_Recv(&theirs_s, 1, MPI_DOUBLE, rank, kClockTag, comm, MPI_STATUS_IGNORE);
    const double mine_s = clock();
    MPI_Send(&mine_s, 1, MPI_DOUBLE, rank, kClockTag, comm);
  }
}

}  // namespace

ClockOffset measure_clock_offset(const Session& session, int round_trips,
                                 const std::function<double()>& clock) {
  const int rank = session.rank();
  MPI_Comm comm = session.world();
  ClockOffset mine;
  for (int other = 1; other < session.size(); ++other) {
    const CollectiveScope watched(session.watchdog(), CollectiveKind::kBarrier);
    if (rank == 0) answer(comm, other, round_trips, clock);
    if (rank == other) mine = ask_root(comm, round_trips, clock);
    MPI_Barrier(comm);
  }
  return mine;
}

}  // namespace gradsync
