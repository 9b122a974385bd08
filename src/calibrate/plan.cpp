// SPDX-License-Identifier: BSD-3-Clause
#include "calibrate/plan.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::calibrate {

namespace {

/// Sizes of one operation with what each is for.
std::vector<PlannedSize> sizes_of(const OperationEntry& operation, ValueType type,
                                  const std::vector<std::int64_t>& sizes,
                                  const std::vector<BucketShape>& buckets) {
  std::map<std::int64_t, bool> all;
  for (const std::int64_t bytes : sizes)
    all[whole_value_bytes(bytes, value_bytes(type))] = false;
  for (const BucketShape& bucket : buckets)
    if (bucket.kind == operation.kind && bucket.bytes > 0)
      all[whole_value_bytes(bucket.bytes, value_bytes(type))] = true;
  std::vector<PlannedSize> planned;
  for (const auto& [bytes, of_bucket] : all)
    planned.push_back({bytes, of_bucket});
  return planned;
}

}  // namespace

std::vector<BucketShape> distinct(std::vector<BucketShape> shapes) {
  const auto key = [](const BucketShape& shape) { return std::pair(shape.kind, shape.bytes); };
  std::sort(shapes.begin(), shapes.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  shapes.erase(std::unique(shapes.begin(), shapes.end(),
                           [&](const auto& a, const auto& b) { return key(a) == key(b); }),
               shapes.end());
  return shapes;
}

std::vector<BucketShape> bucket_shapes(RunReader& run, const std::string& path) {
  // The last iteration that has collectives: with local steps few have.
  for (std::size_t row = run.index().buckets > 0 ? run.iterations() : 0; row-- > 0;)
    if (auto shapes = distinct(run.rows(row, 1)[0].buckets); !shapes.empty()) {
      for (const BucketShape& shape : shapes)
        if (shape.bytes < 0 || shape.bytes > kLargestMessageBytes)
          throw Error(ExitCode::kBadData,
                      fmt::format("'{}' states a collective of {} bytes", path, shape.bytes),
                      "give a run file of gradsync-train");
      return shapes;
    }
  throw Error(ExitCode::kBadData, fmt::format("'{}' holds no collectives", path),
              "give a run of a mode that exchanges gradients, with at least one iteration");
}

std::vector<PlannedCell> plan_cells(const std::vector<const OperationEntry*>& chosen,
                                    const std::vector<std::string>& cadences,
                                    const std::vector<std::int64_t>& sizes,
                                    const std::vector<BucketShape>& buckets,
                                    const std::vector<ValueType>& types) {
  std::vector<PlannedCell> cells;
  for (const OperationEntry* operation : chosen)
    for (const ValueType type : types)
      for (const std::string& cadence : cadences)
        for (const PlannedSize& size : sizes_of(*operation, type, sizes, buckets))
          cells.push_back({operation, cadence, size, type});
  return cells;
}

bool same_section(const PlannedCell& a, const PlannedCell& b) {
  return a.operation == b.operation && a.cadence == b.cadence && a.type == b.type;
}

bool moved_by_transport(const PlannedCell& cell) {
  return has_own_all_reduce(cell.operation->kind, cell.type);
}

}  // namespace gradsync::calibrate
