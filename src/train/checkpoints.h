#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "stats/clock.h"
#include "train/pipeline.h"
#include "train/rank_state.h"
#include "train/run_setting.h"

namespace gradsync {

/// The times at which a run writes checkpoints, and its stop; between iterations, off the clock.
class Checkpoints {
 public:
  /// `exchange`, `setting` and what `state` names must outlive it.
  Checkpoints(Exchange& exchange, const RunSetting& setting, const RankState& state);

  /// Restores the state of all ranks; returns the position: the start, for a new run.
  /// Collective.
  Position restore();

  /// Why this rank stops now rather than after one more iteration; `evaluates`: and after
  /// the evaluation that comes before it.
  StopReason wanted(bool evaluates = false) const;

  /// Call it after each evaluation, with the time it took.
  void after_evaluation(double time_s);

  /// Whether `after_iteration` will write a checkpoint at this position.
  bool due(const Position& position) const;

  /// Call it after each iteration. Writes a checkpoint when one is due. When a rank requests a
  /// stop, writes one, closes the run file as partial and ends the job with kStoppedEarly: on rank
  /// 0 as an Error, on the others without returning. Collective.
  void after_iteration(const Position& position, const Verdict& verdict);

  /// Call it when the last iteration and its epoch are recorded. A run that resumes from a later
  /// checkpoint records again what is recorded after this.
  void end_training();

  /// Call it when the training is over. Writes a checkpoint if one was asked for at its end.
  /// Collective.
  void after_training(const Position& position);

  /// Stops as after_iteration does; for use before something long outside iterations. Collective.
  void stop_if_wanted(const Position& position);

 private:
  void save(const Position& position);
  void stop(const Position& position, const Verdict& verdict);
  void meet();
  CheckpointInfo info_at(const Position& position) const;
  std::filesystem::path target(const Position& position) const;
  std::string stop_message(const Position& position, const Verdict& verdict) const;
  bool root() const { return exchange_.session().rank() == 0; }
  bool recorded() const { return !setting_.options.output.empty(); }

  Exchange& exchange_;
  const RunSetting& setting_;
  RankState state_;
  std::optional<OwnCheckpoints> own_;           ///< on rank 0, of a run that is recorded
  std::optional<std::int64_t> training_bytes_;  ///< of the journal, when the training had ended
  Stopwatch since_iteration_;  ///< the end of the last one, and of what followed it
  StopForecast forecast_;
};

}  // namespace gradsync
