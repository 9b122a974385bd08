// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_info.h"
#include "exchange/exchange.h"
#include "model/replica.h"
#include "optim/optimizer.h"
#include "options/options.h"
#include "record/run.h"
#include "stats/clock.h"
#include "sync/sync_mode.h"
#include "train/run_summary.h"

/// State of a rank: its replica at the start and compared with the other ranks', what lasts from
/// one iteration to the next, and checkpoints of that.
///
/// A checkpoint holds what rank 0 has, and of every other rank what differs from it: equal replicas
/// are stored once, batch-norm statistics and replicas without exchange as often as there are ranks
/// (`rank3/buffers/…`). Rank 0 alone reads and writes, so it is there for all ranks or for none.
namespace gradsync {

/// The rank's network at the start, by --init. With `broadcast` rank 0's parameters and buffers
/// travel. Collective.
Replica first_replica(Exchange& exchange, const TrainOptions& options, Layout layout,
                      const torch::Device& device);

/// Whether ranks may come to hold networks that differ: each one is then tested on its own.
bool replicas_may_differ(const TrainOptions& options, int ranks);

/// Hashes and distances of every rank's network, on rank 0; other ranks get an empty row. The
/// values of rank 0 travel only where a hash differs. Collective.
ReplicaRow compare_replicas(Exchange& exchange, const Replica& replica);

/// "24b7ffe1b7d01ac3", or each one that occurs, with a blank between.
std::string distinct_hashes(const ReplicaRow& row);

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

/// What lasts from one iteration of a rank to the next; all outlive it.
struct RankState {
  Replica& replica;
  Optimizer& optimizer;
  SyncMode& mode;
  RankSummary& run_summary;
  RankSummary& epoch_summary;
  EpochClock& epoch_clock;
  std::vector<BucketShape>& buckets;  ///< collectives of the last iteration
};

/// The whole state, in an order that is the same on all ranks. Between SyncMode::assemble and
/// take_apart, and so is `restore`. Contiguous parameters are not copied: use it in between.
std::vector<NamedTensor> snapshot(const RankState& state);

/// Puts a rank where the snapshot was taken; the mode must be attached. Throws Error kBadData if
/// something is missing or has another shape.
void restore(const RankState& state, const std::vector<NamedTensor>& snapshot);

/// Writes one. `info` is used on rank 0. Throws Error kInputOutput or kCannotCreate there.
/// With `root_only` the other ranks take the network from rank 0. Collective.
void write_checkpoint(Exchange& exchange, const std::vector<NamedTensor>& mine,
                      const CheckpointInfo& info, const std::filesystem::path& target,
                      bool root_only);

/// Gives every rank what it had; `file` is used on rank 0. Collective.
std::vector<NamedTensor> read_checkpoint(Exchange& exchange, const CheckpointFile* file);

}  // namespace gradsync
