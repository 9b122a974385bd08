#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/published/units.h"

namespace gradsync::report::published {

/// What a published quantity is, whatever the report calls it.
enum class Kind {
  kEpochTime,
  kTrainingTime,
  kRunningTime,
  kIterationTime,
  kComputeTime,
  kCommTime,
  kSpeedup,
  kWeakSpeedup,
  kEfficiency,
  kWeakEfficiency,
  kBandwidth,
  kThroughput,
  kComputeShare,
  kCommShare,
  kOtherShare,
  kLoss,
  kAccuracy,
  kCorrect,
  kMessageBytes,
  kVolume,  ///< bytes that are sent
  kParameters,
  kUnknown,
};

struct Quantity {
  Kind kind = Kind::kUnknown;
  Dimension dimension = Dimension::kUnknown;
  bool derived = false;  ///< computed from other numbers rather than measured
};

/// A name of the format, any capitals, - as _; numbers in names count as N: epoch_2_time.
Quantity quantity_of(std::string_view name);

/// Can be measured as well as derived: a compute or communication time, a share.
bool may_be_measured(Kind kind);

/// A time of a whole epoch.
bool is_epoch_time(Kind kind);

}  // namespace gradsync::report::published
