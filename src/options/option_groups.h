#pragma once

#include "options/option_roles.h"
#include "options/options.h"

/// The trainer's options, a group of --help a file, and what one option means for another. The
/// checks throw Error kUsage as train_options() does.
namespace gradsync {

/// TrainOptions::checkpoint_every of `--checkpoint-every end`.
inline constexpr std::int64_t kCheckpointAtEnd = -1;

/// The most iterations of any option.
inline constexpr std::int64_t kMaxIterations = 1'000'000'000;
/// The most of anything else that is counted.
inline constexpr std::int64_t kMaxCount = 1'000'000;
/// Of images in a batch; one beyond the images of an epoch holds all of them.
inline constexpr std::int64_t kMaxBatchPerRank = 10'000'000'000;
/// The value of an option that leaves the choice to the program.
inline const std::string kAuto = "auto";

/// The option with TrainOption::may_change.
TrainOption may_change(TrainOption option);

/// The option with TrainOption::open.
TrainOption left_open(const std::string& open, TrainOption option);

/// The option with TrainOption::formerly.
TrainOption formerly(const std::string& value, TrainOption option);

/// An option that leaves the choice open with kAuto, which is 0 in the settings.
TrainOption open_or(OptionRole role, const std::string& name, std::int64_t TrainOptions::*member,
                    const BoundValue<TrainOptions>& other, const std::string& help);

TrainOptionTable synchronization_options();
TrainOptionTable replica_options();
TrainOptionTable model_and_data_options();
TrainOptionTable training_options();
TrainOptionTable optimizer_options();
TrainOptionTable learning_rate_options();
TrainOptionTable machine_options();
TrainOptionTable calibration_options();
TrainOptionTable output_options();
TrainOptionTable stop_options();

void require_network_possible(const OptionValues& values, const TrainOptions& options);
void require_overlap_possible(const OptionValues& values, const TrainOptions& options);
void require_gradients_suffice(const OptionValues& values, const TrainOptions& options);
void require_one_batch(const OptionValues& values, const TrainOptions& options);
void require_optimizer_possible(const OptionValues& values, const TrainOptions& options);
void require_rate_possible(const OptionValues& values, const TrainOptions& options);
void require_target_possible(const OptionValues& values, const TrainOptions& options);
void require_checkpoints_possible(const OptionValues& values, const TrainOptions& options);

}  // namespace gradsync
