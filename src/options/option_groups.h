#pragma once

#include "options/option_roles.h"
#include "options/options.h"

/// The groups of the trainer's options that have a file of their own: their lines of --help, and
/// what is read from them. All throw Error kUsage as train_options() does.
namespace gradsync {

/// TrainOptions::checkpoint_every of `--checkpoint-every end`.
inline constexpr std::int64_t kCheckpointAtEnd = -1;

/// The most iterations of any option.
inline constexpr std::int64_t kMaxIterations = 1'000'000'000;
/// The value of an option that leaves the choice to the program.
inline const std::string kAuto = "auto";

/// "a|b|c", as --help shows choices.
std::string joined(const std::vector<std::string>& choices);

TrainOptionTable synchronisation_options();
void read_synchronisation(const OptionValues& values, TrainOptions& options);
/// Once all other options have been read.
void require_overlap_possible(const OptionValues& values, const TrainOptions& options);

TrainOptionTable optimiser_options();
void read_optimiser(const OptionValues& values, TrainOptions& options);

TrainOptionTable learning_rate_options();
void read_learning_rate(const OptionValues& values, TrainOptions& options);

/// Reads `sync` and `batch_norm` of the options, which come before.
TrainOptionTable replica_options();
void read_replicas(const OptionValues& values, TrainOptions& options);

TrainOptionTable stop_options();
void read_stop(const OptionValues& values, TrainOptions& options);

}  // namespace gradsync
