#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/replica.h"
#include "optim/optimizer.h"
#include "record/run.h"
#include "stats/clock.h"
#include "sync/sync_mode.h"
#include "train/run_summary.h"

namespace gradsync {

/// Where a run stands between two iterations.
struct Position {
  std::int64_t iteration = 0;  ///< iterations done
  std::int64_t epoch = 0;      ///< in which it resumes
  std::int64_t step = 0;       ///< iterations of that epoch that are done
};

/// The time of the epoch so far on this rank, whichever process spent it.
struct EpochClock {
  double training_s = 0;  ///< iterations without waiting for data
  double before_s = 0;    ///< in processes before this one
  Stopwatch since;        ///< of this one

  double running_s() const { return before_s + since.elapsed_s(); }
};

/// What one rank carries from one iteration to the next; all outlive it.
struct RankState {
  Replica& replica;
  Optimizer& optimizer;
  SyncMode& mode;
  RankSummary& run_summary;
  RankSummary& epoch_summary;
  EpochClock& epoch_clock;
  std::vector<BucketShape>& buckets;  ///< collectives of the last iteration
};

/// Values with a name, as a checkpoint holds them: on the CPU, contiguous in the order of the
/// shape, float32, float64, bool or whole numbers of 8 to 64 bits with a sign, of 8 without.
struct NamedTensor {
  std::string name;
  torch::Tensor values;
  bool of_rank = false;  ///< what the rank measured, rather than the network's
};

/// All of it, in an order that is the same on all ranks. Contiguous parameters are not copied: use
/// it before the next iteration.
std::vector<NamedTensor> snapshot(const RankState& state);

/// Puts a rank where the snapshot was taken; the mode must be attached. Throws Error kBadData if
/// something is missing or has another shape.
void restore(const RankState& state, const std::vector<NamedTensor>& snapshot);

}  // namespace gradsync
