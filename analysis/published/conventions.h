#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/published/quantities.h"

/// The ways in which reports compute a number from others, as data: a new convention is one line in
/// conventions.cpp. What they need is looked up by search.cpp.
namespace gradsync::report::published {

enum class Input : std::size_t {
  kDevices,      ///< n
  kBaseDevices,  ///< of the base, 1 as a rule
  kTime,         ///< T(n), s
  kBaseTime,     ///< T(base), s
  kCompute,      ///< published compute time, s
  kComm,         ///< communication time, s: published, or derived from T(n) and T(base)
  kIterations,   ///< of one epoch on n devices
  kMessage,      ///< bytes of one gradient
  kBandwidth,    ///< published, B/s
  kSpeedup,      ///< published
  kImages,       ///< of one epoch
  kInputs,
};

constexpr std::size_t kInputCount = static_cast<std::size_t>(Input::kInputs);

using InputValues = std::array<double, kInputCount>;

/// The value of one input.
inline double at(const InputValues& inputs, Input input) {
  return inputs[static_cast<std::size_t>(input)];
}

struct Convention {
  Kind kind;
  std::string_view name;
  std::string_view formula;  ///< in symbols, for people
  std::vector<Input> needs;
  double (*value)(const InputValues& inputs);  ///< in seconds, bytes per second, 1 or 1/s
  int cost;  ///< 0 for what the words say; more, the further it is from that

  bool needs_input(Input input) const;
};

/// Those of one kind, the likeliest first. None for a kind that is measured.
std::vector<const Convention*> conventions_of(Kind kind);

/// A reading of a printed unit by which all values of a column are off by one factor.
struct Slip {
  std::string_view text;  ///< "1,000 times too large"; empty: none
  double factor;          ///< printed = true · factor
  int cost;
};

/// For a printed unit: none first. Decimal units may have been computed as binary ones and the
/// other way round.
std::vector<Slip> slips_of(Dimension dimension, std::string_view unit);

/// How the iterations of an epoch are counted when the batches do not fill it.
enum class LastBatch { kCounted, kLeftOut, kFraction };

/// Iterations of an epoch; NaN where the batch is unknown, at least 1.
double epoch_iterations(double images, double global_batch, LastBatch last);

std::string_view last_batch_text(LastBatch last);

}  // namespace gradsync::report::published
