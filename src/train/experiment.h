// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/cli/program_output.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/session.h"
#include "stats/estimate.h"
#include "train/run_setting.h"
#include "train/trainer.h"

namespace gradsync {

/// A training of an experiment. What it refers to must outlive the experiment.
struct Entrant {
  std::string name;
  Exchange& exchange;
  const RunSetting& setting;
  std::int64_t joined = 0;  ///< its first round
};

/// The members of a round, from 0, in the order of their blocks: a round of a Williams design
/// (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
/// treatments", Australian Journal of Scientific Research A 2, 1949). In `count` rounds, twice as
/// many for an odd number, each member is equally often at each place of a round, and equally often
/// behind each other one, so that what a place or a predecessor does to an iteration averages out.
/// Each design draws which member has which part in it, and the order of its rounds.
std::vector<std::size_t> order_of_round(std::uint64_t seed, std::int64_t round, std::size_t count);

/// What a block of an experiment has to be, and what that was measured from.
struct BlockChoice {
  std::int64_t block = 1, warmup = 0;
  /// Time of the first and of the second iteration after a change of training over that of the
  /// third and fourth.
  std::array<Estimate, 2> slowed = {};
  /// The most that completing a block takes of an iteration, of a training whose messages outlive
  /// an iteration; 0 where there is none.
  double completion = 0;
  std::int64_t period = 1;  ///< that what counts of a block is a multiple of (common_period)
  double probe_s = 0;
};

/// Trains copies of the entrants in turn for some rounds, unrecorded. Leading iterations of a block
/// do not count if they are shown to take more than 1 % longer (by the interval of their ratio);
/// what counts is a multiple of the period then. A block of a training whose messages outlive an
/// iteration (--overlap step) is so long that completing them at its end is less than 1 % of it, up
/// to 64 iterations. The same on all ranks. Collective.
BlockChoice choose_block(const Session& session, const std::vector<Entrant>& entrants);
/// The line about it that rank 0 prints.
std::string block_text(const BlockChoice& choice);

/// Settles those of the two bucket sizes of `options`, which the setting refers to, that are `auto`
/// (0): copies with PyTorch's sizes and with those that are predicted to expose least
/// (best_buckets) train in turn for some rounds, unrecorded, and the faster ones are taken.
/// PyTorch's where buckets are not used or there is one rank. Returns the line about it that rank 0
/// prints; none where nothing was tried. The same on all ranks. Throws Error kUsage for ranks on
/// GPUs, which the prediction does not know. Collective.
std::string settle_buckets(Exchange& exchange, Transport& transport, const RunSetting& setting,
                           TrainOptions& options);

/// Medians of a few iterations of a copy with these options, unrecorded. The same on all ranks.
/// Collective.
BlockTime tried_briefly(Exchange& exchange, const RunSetting& setting, TrainOptions options);

/// How many trainings of the options fit into what the hosts, or their devices, have left; the
/// same on all ranks, kMaxIterations where that is not known. Collective.
std::int64_t room_for(const Session& session, const TrainOptions& options,
                      const ComputeSettings& compute);

/// Prints what trainings of these options hold at once. Throws Error kOutOfMemory, which says how
/// many would fit, if that is more than a host or its device has left. Collective.
void require_room(const Session& session, const std::vector<const TrainOptions*>& trainings,
                  const ComputeSettings& compute);

/// Several trainings of one job, block by block in turn, so that what changes on the machine while
/// they run changes all of them (A. Abedi and T. Brecht, "Conducting repeatable experiments in
/// highly variable cloud computing environments", ICPE 2017: randomized multiple interleaved
/// trials). In each round each has one block of --block iterations, in an order that is drawn
/// alike on all ranks from a design in which places and predecessors are balanced. A block begins
/// after a barrier, when nothing of the one before is on its way. The first training is the
/// reference.
class Experiment {
 public:
  /// Both must outlive it. Without `stop` nobody asks whether to stop.
  Experiment(const Session& session, const StopRequest* stop) : session_(session), stop_(stop) {}
  ~Experiment();
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  /// Adds a training, which begins at its start or where it resumes. One that joins after the first
  /// round takes part until the others end. Collective.
  void add(const Entrant& entrant);

  /// Trains all of them to their end, or until all ratios are known to --until, and prints the
  /// ratios. A round in which one of them has its block already, because the job was resumed, is
  /// none of the experiment. Calls `after_first_rounds` once, between two rounds, when a few are
  /// measured. Stops between two blocks, as Trainer::advance does. Collective.
  void run(const std::function<void()>& after_first_rounds, ProgramOutput& output);

  /// Trains one round of those that have not ended. Collective.
  void run_round();

  /// The training of the entrant that was added at this place, from 0.
  const Trainer& training(std::size_t which) const { return *members_[which].trainer; }
  /// Time of the entrant's blocks per iteration over those of another one, on rank 0.
  Estimate ratio(std::size_t which, std::size_t to) const;
  /// Medians over its rounds, on rank 0.
  BlockTime medians(std::size_t which) const;
  std::int64_t next_round() const { return round_; }

 private:
  struct Member {
    Entrant what;
    std::unique_ptr<Trainer> trainer;
    std::map<std::int64_t, BlockTime> blocks;  ///< by round, on rank 0

    std::int64_t rounds_per_exchange() const;
  };

  const TrainOptions& options() const { return members_.front().what.setting.options; }
  std::int64_t begin_of(const Member& member) const;
  bool known_well() const;
  void stop_if_wanted(const Member* evaluates);
  Table ratio_table() const;

  const Session& session_;
  const StopRequest* stop_;
  std::deque<Member> members_;
  std::int64_t round_ = 0;        ///< the next one
  std::int64_t first_round_ = 0;  ///< of this process
  RankTraffic moved_before_;      ///< by this rank, when the first round began
  double longest_block_s_ = 0;    ///< of any member, with an evaluation that fell into it
  bool known_ = false;            ///< whether --until is reached, on all ranks
  std::int64_t rounds_ = 0;       ///< that were measured, on all ranks
};

}  // namespace gradsync
