#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "record/run.h"

/// Published numbers as gradsync-audit reads and judges them: the only program that knows how.
namespace gradsync::report::published {

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
