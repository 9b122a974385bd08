#include "analysis/published/quantities.h"

#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync::report::published {

namespace {

using NamedKind = std::pair<std::string_view, Kind>;
using NamedFactor = std::pair<std::string_view, double>;

/// N stands for a number.
constexpr std::array<NamedKind, 33> kKinds = {{{"epoch_time", Kind::kEpochTime},
                                               {"epoch_N_time", Kind::kEpochTime},
                                               {"time_per_epoch", Kind::kEpochTime},
                                               {"training_time", Kind::kTrainingTime},
                                               {"epoch_N_training_time", Kind::kTrainingTime},
                                               {"running_time", Kind::kRunningTime},
                                               {"epoch_N_running_time", Kind::kRunningTime},
                                               {"iteration_time", Kind::kIterationTime},
                                               {"mean_iteration_time", Kind::kIterationTime},
                                               {"time_per_iteration", Kind::kIterationTime},
                                               {"compute_time", Kind::kComputeTime},
                                               {"computation_time", Kind::kComputeTime},
                                               {"comm_time", Kind::kCommTime},
                                               {"communication_time", Kind::kCommTime},
                                               {"speedup", Kind::kSpeedup},
                                               {"strong_speedup", Kind::kSpeedup},
                                               {"bandwidth", Kind::kBandwidth},
                                               {"busbw", Kind::kBandwidth},
                                               {"algbw", Kind::kBandwidth},
                                               {"bandwidth_utilization", Kind::kBandwidth},
                                               {"compute_share", Kind::kComputeShare},
                                               {"comm_share", Kind::kCommShare},
                                               {"communication_share", Kind::kCommShare},
                                               {"loss", Kind::kLoss},
                                               {"loss_iter_N", Kind::kLoss},
                                               {"epoch_N_loss", Kind::kLoss},
                                               {"train_loss", Kind::kLoss},
                                               {"test_loss", Kind::kLoss},
                                               {"accuracy", Kind::kAccuracy},
                                               {"epoch_N_accuracy", Kind::kAccuracy},
                                               {"train_accuracy", Kind::kAccuracy},
                                               {"test_accuracy", Kind::kAccuracy},
                                               {"test_correct", Kind::kCorrect}}};

constexpr std::array<NamedFactor, 19> kSeconds = {{{"ns", 1e-9},
                                                   {"us", 1e-6},
                                                   {"µs", 1e-6},
                                                   {"μs", 1e-6},
                                                   {"ms", 1e-3},
                                                   {"s", 1},
                                                   {"sec", 1},
                                                   {"secs", 1},
                                                   {"second", 1},
                                                   {"seconds", 1},
                                                   {"min", 60},
                                                   {"mins", 60},
                                                   {"minute", 60},
                                                   {"minutes", 60},
                                                   {"h", 3600},
                                                   {"hr", 3600},
                                                   {"hour", 3600},
                                                   {"hours", 3600},
                                                   {"d", 86400}}};

constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr std::array<NamedFactor, 21> kBytes = {
    {{"B", 1},       {"byte", 1},   {"bytes", 1},    {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
     {"GB", 1e9},    {"TB", 1e12},  {"KiB", kKi},    {"MiB", kMi},    {"GiB", kGi},    {"TiB", kTi},
     {"bit", 0.125}, {"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"Tbit", 125e9}, {"kb", 125},
     {"Mb", 125e3},  {"Gb", 125e6}, {"Tb", 125e9}}};
constexpr std::array<NamedFactor, 4> kBitsPerSecond = {
    {{"kbps", 125}, {"Mbps", 125e3}, {"Gbps", 125e6}, {"Tbps", 125e9}}};

template <std::size_t N>
std::optional<double> factor_in(const std::array<NamedFactor, N>& names, std::string_view name) {
  for (const auto& [known, factor] : names)
    if (known == name) return factor;
  return {};
}

// "Epoch-2-Time" as "epoch_N_time".
std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !pattern.ends_with('N'))
      pattern += 'N';
    else if (!digit)
      pattern += c == '-' || c == ' '
                     ? '_'
                     : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return pattern;
}

std::optional<double> bandwidth_factor(std::string_view text) {
  for (const std::string_view ending : {"/s", "/sec", "/second", "ps"})
    if (text.ends_with(ending))
      if (const auto bytes = factor_in(kBytes, text.substr(0, text.size() - ending.size())))
        return bytes;
  return factor_in(kBitsPerSecond, text);
}

}  // namespace

Kind kind_of(std::string_view name) {
  const std::string pattern = pattern_of(name);
  for (const auto& [known, kind] : kKinds)
    if (known == pattern) return kind;
  return Kind::kUnknown;
}

bool is_epoch_time(Kind kind) {
  return kind == Kind::kEpochTime || kind == Kind::kTrainingTime || kind == Kind::kRunningTime;
}

bool is_time(Kind kind) {
  return is_epoch_time(kind) || kind == Kind::kIterationTime || kind == Kind::kComputeTime ||
         kind == Kind::kCommTime;
}

bool is_derived(Kind kind) {
  return kind == Kind::kComputeTime || kind == Kind::kCommTime || kind == Kind::kSpeedup ||
         kind == Kind::kBandwidth;
}

std::optional<Unit> parse_unit(std::string_view text) {
  if (text == "%" || text == "percent") return Unit{0.01};
  if (text.empty() || text == "1" || text == "x" || text == "×") return Unit{};
  if (const auto seconds = factor_in(kSeconds, text)) return Unit{*seconds};
  if (const auto rate = bandwidth_factor(text)) return Unit{*rate, 0, true};
  if (!text.starts_with("of ")) return {};
  try {
    return Unit{1, parse_number(trimmed(text.substr(3)))};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace gradsync::report::published
