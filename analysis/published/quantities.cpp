#include "analysis/published/quantities.h"

#include <array>
#include <cctype>

namespace gradsync::report::published {

namespace {

struct Known {
  std::string_view name;  ///< N stands for a number
  Quantity quantity;
};

constexpr Quantity primary(Kind kind, Dimension dimension) {
  return {kind, dimension, false};
}
constexpr Quantity derived(Kind kind, Dimension dimension) {
  return {kind, dimension, true};
}

constexpr auto kTime = Dimension::kTime;
constexpr auto kRatio = Dimension::kRatio;

/// A new name of a quantity is a line here.
constexpr std::array<Known, 48> kKnown = {{
    {"epoch_time", primary(Kind::kEpochTime, kTime)},
    {"epoch_N_time", primary(Kind::kEpochTime, kTime)},
    {"time_per_epoch", primary(Kind::kEpochTime, kTime)},
    {"training_time", primary(Kind::kTrainingTime, kTime)},
    {"epoch_N_training_time", primary(Kind::kTrainingTime, kTime)},
    {"running_time", primary(Kind::kRunningTime, kTime)},
    {"epoch_N_running_time", primary(Kind::kRunningTime, kTime)},
    {"iteration_time", primary(Kind::kIterationTime, kTime)},
    {"mean_iteration_time", primary(Kind::kIterationTime, kTime)},
    {"time_per_iteration", primary(Kind::kIterationTime, kTime)},
    {"compute_time", derived(Kind::kComputeTime, kTime)},
    {"computation_time", derived(Kind::kComputeTime, kTime)},
    {"comm_time", derived(Kind::kCommTime, kTime)},
    {"communication_time", derived(Kind::kCommTime, kTime)},
    {"speedup", derived(Kind::kSpeedup, kRatio)},
    {"strong_speedup", derived(Kind::kSpeedup, kRatio)},
    {"weak_speedup", derived(Kind::kWeakSpeedup, kRatio)},
    {"efficiency", derived(Kind::kEfficiency, kRatio)},
    {"strong_efficiency", derived(Kind::kEfficiency, kRatio)},
    {"parallel_efficiency", derived(Kind::kEfficiency, kRatio)},
    {"scaling_efficiency", derived(Kind::kEfficiency, kRatio)},
    {"weak_efficiency", derived(Kind::kWeakEfficiency, kRatio)},
    {"bandwidth", derived(Kind::kBandwidth, Dimension::kBandwidth)},
    {"busbw", derived(Kind::kBandwidth, Dimension::kBandwidth)},
    {"algbw", derived(Kind::kBandwidth, Dimension::kBandwidth)},
    {"bandwidth_utilization", derived(Kind::kBandwidth, Dimension::kBandwidth)},
    {"volume", derived(Kind::kVolume, Dimension::kBytes)},
    {"bytes_to_send", derived(Kind::kVolume, Dimension::kBytes)},
    {"throughput", derived(Kind::kThroughput, Dimension::kRate)},
    {"images_per_s", derived(Kind::kThroughput, Dimension::kRate)},
    {"compute_share", primary(Kind::kComputeShare, kRatio)},
    {"comm_share", primary(Kind::kCommShare, kRatio)},
    {"communication_share", primary(Kind::kCommShare, kRatio)},
    {"data_share", primary(Kind::kOtherShare, kRatio)},
    {"optimizer_share", primary(Kind::kOtherShare, kRatio)},
    {"other_share", primary(Kind::kOtherShare, kRatio)},
    {"loss", primary(Kind::kLoss, kRatio)},
    {"loss_iter_N", primary(Kind::kLoss, kRatio)},
    {"epoch_N_loss", primary(Kind::kLoss, kRatio)},
    {"train_loss", primary(Kind::kLoss, kRatio)},
    {"test_loss", primary(Kind::kLoss, kRatio)},
    {"accuracy", primary(Kind::kAccuracy, kRatio)},
    {"epoch_N_accuracy", primary(Kind::kAccuracy, kRatio)},
    {"train_accuracy", primary(Kind::kAccuracy, kRatio)},
    {"test_accuracy", primary(Kind::kAccuracy, kRatio)},
    {"test_correct", primary(Kind::kCorrect, kRatio)},
    {"message_bytes", primary(Kind::kMessageBytes, Dimension::kBytes)},
    {"parameters", primary(Kind::kParameters, kRatio)},
}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "Epoch-2-Time" as "epoch_N_time".
std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (is_digit(c) && (i == 0 || !is_digit(name[i - 1])))
      pattern += 'N';
    else if (!is_digit(c))
      pattern += c == '-' || c == ' '
                     ? '_'
                     : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return pattern;
}

}  // namespace

Quantity quantity_of(std::string_view name) {
  const std::string pattern = pattern_of(name);
  for (const Known& known : kKnown)
    if (known.name == pattern) return known.quantity;
  return {};
}

bool may_be_measured(Kind kind) {
  return kind == Kind::kComputeTime || kind == Kind::kCommTime;
}

bool is_epoch_time(Kind kind) {
  return kind == Kind::kEpochTime || kind == Kind::kTrainingTime || kind == Kind::kRunningTime;
}

}  // namespace gradsync::report::published
