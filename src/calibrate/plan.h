// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "base/parse.h"
#include "calibrate/operation.h"
#include "record/reader.h"

namespace gradsync::calibrate {

/// Whether ranks meet before each call (what one collective costs) or calls follow each other (what
/// a stream of them does). Names as in CalibrationRow::cadence.
inline const std::vector<std::string> kCadences = {"isolated", "back-to-back"};

/// What of the ranks' times of a call counts, in the order of nccl-tests' -a.
enum class OverRanks : std::uint8_t { kRoot, kMean, kFastest, kSlowest };

/// How often a call is made for one number.
struct CallCounts {
  int warmup = 1;
  int timed = 20;
  int checked = 1;  ///< results compared, isolated; 0: none, neither back to back
  OverRanks over_ranks = OverRanks::kSlowest;
  /// Fewer timed calls (at least kFewestCalls) where they would take longer than this.
  double budget_s = std::numeric_limits<double>::infinity();
};
inline constexpr int kFewestCalls = 5;

struct PlannedSize {
  std::int64_t bytes = 0;  ///< payload of one rank
  bool of_bucket = false;
};

/// One number to measure.
struct PlannedCell {
  const OperationEntry* operation = nullptr;
  std::string cadence;
  PlannedSize size;
  ValueType type = ValueType::kFloat32;
};

/// The collectives of the last iteration of a run, each kind and size once.
/// Throws Error kBadData for a run without any.
std::vector<BucketShape> bucket_shapes(RunReader& run, const std::string& path);
/// Each kind and size once, in order.
std::vector<BucketShape> distinct(std::vector<BucketShape> shapes);

/// All cells: operation by operation, type by type, cadence by cadence, sizes rising, in whole
/// values. `buckets` add the sizes of
/// their kind, once each, marked as such.
std::vector<PlannedCell> plan_cells(const std::vector<const OperationEntry*>& chosen,
                                    const std::vector<std::string>& cadences,
                                    const std::vector<std::int64_t>& sizes,
                                    const std::vector<BucketShape>& buckets,
                                    const std::vector<ValueType>& types = {ValueType::kFloat32});

/// Whether cells are lines of one table.
bool same_section(const PlannedCell& a, const PlannedCell& b);
/// Whether a transport of host memory moves it itself rather than leaving it to MPI.
bool moved_by_transport(const PlannedCell& cell);

}  // namespace gradsync::calibrate
