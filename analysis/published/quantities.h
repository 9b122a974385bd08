#pragma once

#include <optional>
#include <string_view>

/// What the tables of a published report hold: quantities that runs have as well, and printed
/// units.
namespace gradsync::report::published {

enum class Kind {
  kEpochTime,
  kTrainingTime,
  kRunningTime,
  kIterationTime,
  kComputeTime,
  kCommTime,
  kSpeedup,
  kBandwidth,
  kComputeShare,
  kCommShare,
  kLoss,
  kAccuracy,
  kCorrect,
  kUnknown,
};

/// Kind of a quantity by its name in any capitals, - as _; a number counts as N: epoch_2_time.
/// kUnknown for what runs do not have.
Kind kind_of(std::string_view name);

/// A time of a whole epoch.
bool is_epoch_time(Kind kind);
bool is_time(Kind kind);
/// Computed from other numbers rather than measured, in published reports.
bool is_derived(Kind kind);

/// A printed unit: value * factor is in seconds, bytes per second or 1.
struct Unit {
  double factor = 1;
  double total = 0;  ///< N of "of N", else 0
  bool of_bandwidth = false;
};

/// Unit of ms, s, min, MB/s, GiB/s, Gbit/s, %, 1, "of 10000", ...; nothing for another text.
std::optional<Unit> parse_unit(std::string_view text);

}  // namespace gradsync::report::published
