// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "record/run.h"

/// Published numbers: the quantities that runs have as well, printed units, and what gradsync-audit
/// reads and finds in a file of them. It alone knows the format.
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

constexpr std::int64_t kNotSaid = -1;

struct AuditedNumber {
  std::size_t line = 0;
  std::string report, table, model;
  std::string mode;  ///< "ddp:rank2": what rank 2 printed
  std::string quantity, unit;
  std::int64_t devices = kNotSaid, batch_per_device = kNotSaid;
  double value = kNotMeasured;       ///< as printed, in its unit
  int decimals = 0;                  ///< printed after the point
  double base_value = kNotMeasured;  ///< in s, B/s or 1; NaN: its unit does not fit its quantity
};

struct AuditFinding {
  std::string severity;  ///< impossible, contradicted, doubtful
  std::string check, what;
  std::set<std::size_t> lines;
};

struct AuditedNumbers {
  std::string file;  ///< without its folder
  std::vector<AuditedNumber> numbers;
  std::vector<AuditFinding> findings;
};

/// The numbers of a file (docs/numbers.md) and what gradsync-audit finds in them; `images` of an
/// epoch. Throws Error with the program's exit code for a file that it refuses, on standard error;
/// kEnvironment if it is not there or does not start.
AuditedNumbers audited(const std::filesystem::path& file, std::int64_t images);

/// What is found in numbers that are not in a file; their `line` is set to what findings name.
std::vector<AuditFinding> audit(std::vector<AuditedNumber>& numbers, std::int64_t images);

}  // namespace gradsync::report::published
