#include "collectives/plan.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "support/error.h"

namespace gradsync::calibrate {

namespace {

/// Sizes of one operation with what each is for.
std::vector<PlannedSize> sizes_of(const OperationEntry& operation,
                                  const std::vector<std::int64_t>& sizes,
                                  const std::vector<BucketShape>& buckets) {
  std::map<std::int64_t, bool> all;
  for (const std::int64_t bytes : sizes)
    all[bytes] = false;
  for (const BucketShape& bucket : buckets)
    if (bucket.kind == operation.kind && bucket.bytes > 0)
      all[whole_value_bytes(bucket.bytes)] = true;
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
  if (run.iterations() > 0)
    if (auto shapes = distinct(run.rows(run.iterations() - 1, 1)[0].buckets); !shapes.empty())
      return shapes;
  throw Error(ExitCode::kBadData, fmt::format("'{}' holds no collectives", path),
              "give a run of a mode that exchanges gradients, with at least one iteration");
}

std::vector<PlannedCell> plan_cells(const std::vector<const OperationEntry*>& chosen,
                                    const std::vector<std::string>& cadences,
                                    const std::vector<std::int64_t>& sizes,
                                    const std::vector<BucketShape>& buckets) {
  std::vector<PlannedCell> cells;
  for (const OperationEntry* operation : chosen)
    for (const std::string& cadence : cadences)
      for (const PlannedSize& size : sizes_of(*operation, sizes, buckets))
        cells.push_back({operation, cadence, size});
  return cells;
}

}  // namespace gradsync::calibrate
