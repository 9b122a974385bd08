#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/published/conventions.h"
#include "analysis/published/study.h"

namespace gradsync::report::published {

/// A number of bytes that one gradient may have had.
struct Message {
  std::string text;  ///< "11,173,962 parameters (resnet18, CIFAR) of 4 B"
  double bytes = 0;
  int cost = 0;  ///< 0 for what the name of the model says, more for what it may have meant
};

/// Candidates for a model by its published name: known parameter counts, 4 and 2 bytes each; the
/// likeliest first. Empty for an unknown model.
std::vector<Message> messages_of_model(const std::string& model);

/// "11,173,962".
std::string with_commas(double whole_number);

/// What a published table does not say and a user may know.
struct AuditOptions {
  double images = 50000;                       ///< of one epoch: CIFAR-10's training set
  double parameters = kUnknownNumber;          ///< of every model, for unknown or other ones
  double message_bytes = kUnknownNumber;       ///< of one gradient; counts before parameters
  double fastest_link_bytes_per_s = 900e9;     ///< one direction of NVLink 5
  static constexpr double kUnknownNumber = 0;  ///< not given
};

/// Constants and sources with which a convention is evaluated.
struct Choice {
  TimeSource time, base;
  BaseRule rule;
  Message message;
  LastBatch last = LastBatch::kCounted;
  bool derived_comm = false;  ///< T(n) - T(1)/n instead of the published communication time
  Slip slip = {"", 1, 0};
  int cost = 0;  ///< of all of it, slip included
};

/// What a convention says about one row.
struct Expectation {
  Range range = Range::unknown();  ///< as it would be printed, in base units
  std::vector<std::size_t> lines;  ///< the numbers it rests on
  std::string missing;             ///< why there is none
};

Expectation expect(const Study& study, const Row& row, const Convention& convention,
                   const Choice& choice, const AuditOptions& options);

/// A range as it would be printed with the slip.
Range slipped(const Range& range, const Slip& slip);

enum class Match { kAgrees, kCutOff, kDiffers };

/// The printed digits leave an interval open, and so do those of the numbers the expectation rests
/// on: the two meet (kAgrees), meet if the last digit was cut off rather than rounded (kCutOff), or
/// do not.
Match compare(const Row& row, const Range& expected);

}  // namespace gradsync::report::published
