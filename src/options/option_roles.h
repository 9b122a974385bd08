// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cli/bound_option.h"
#include "options/options.h"

namespace gradsync {

/// What an option means where runs are set side by side: whether runs that differ in it are repeats
/// of one cell of a study, and what may be concluded from them.
enum class OptionRole {
  kMode,          ///< cell: how the mode exchanges gradients
  kBetweenRanks,  ///< cell: what else is between the ranks; without effect on one rank
  kStep,          ///< cell: what an iteration computes, and on what
  kTraining,      ///< cell: what is learned; an iteration takes as long whatever it is
  kMachine,       ///< repeats must match: what the ranks compute on
  kCourse,        ///< repeats must match: how long the run is, and what interrupts it
  kFree,          ///< repeats may differ in it: neither times nor results depend on it, or (seed)
                  ///< only by chance
};

/// One option of the trainer, declared once: --help, the reader, cells of studies, what a resumed
/// run must have again and what a run file records are derived from it. The role comes first and
/// has no default: a row without one does not compile.
struct TrainOption {
  OptionRole role;
  std::string name;
  BoundValue<TrainOptions> value;
  std::string help;  ///< without range and choices
  std::string group = {};
  /// Whether a resumed run may have another value: it changes no parameter, and no row but its
  /// times.
  bool may_change = false;
  /// The value that leaves the choice to the run, which settles and records it; a resumed run takes
  /// what was settled.
  std::string open = {};
  /// What runs did before there was the option, where that is not its default.
  std::string formerly = {};
};

using TrainOptionTable = std::vector<TrainOption>;

/// All options of the trainer, in the order of --help.
const TrainOptionTable& declared_train_options();

/// Null for a name that no option of the trainer has.
const TrainOption* declared_train_option(std::string_view name);

/// How the name of an experiment's control ends, behind that of its reference.
inline constexpr std::string_view kControlEnding = " (control)";

/// Whether a contender of --compare may have a value of its own, behind its mode.
bool is_of_contender(const TrainOption& option);

/// " (another training: …)" for a contender that updates less often (`accumulate=N`); else empty.
std::string other_training_text(const std::string& contender);

/// What a run did whose file says nothing of the option: it is from before the option.
std::string value_before(const TrainOption& option);

/// TrainOptions::checkpoint_every of `--checkpoint-every end`.
inline constexpr std::int64_t kCheckpointAtEnd = -1;

/// The most iterations of any option.
inline constexpr std::int64_t kMaxIterations = 1'000'000'000;
/// The most of anything else that is counted.
inline constexpr std::int64_t kMaxCount = 1'000'000;
/// The most images in a batch; one beyond the images of an epoch holds all of them.
inline constexpr std::int64_t kMaxBatchPerRank = 10'000'000'000;
/// Throws Error kUsage, as train_options() does, where what one option says does not go with
/// another.
void require_possible(const OptionValues& values, const TrainOptions& options);

}  // namespace gradsync
