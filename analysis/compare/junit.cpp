#include "support/junit.h"

#include <fmt/format.h>

#include "analysis/compare/comparison.h"

namespace gradsync::report {

namespace {

std::string ratio_text(const ComparedCell& cell) {
  return fmt::format("B/A = {:.4f} (95 %: {:.4f} to {:.4f}), A {:.6g} s, B {:.6g} s, {}",
                     cell.time.ratio.value, cell.time.ratio.low, cell.time.ratio.high,
                     cell.time_a.value, cell.time_b.value, cell.verdict());
}

JunitCase case_of(const ComparedCell& cell, double threshold) {
  if (!cell.both() || !cell.time.ratio.has_interval())
    return {cell.name, JunitCase::Result::kSkipped, cell.verdict(), ""};
  const auto result =
      cell.fails(threshold) ? JunitCase::Result::kFailed : JunitCase::Result::kPassed;
  return {cell.name, result, ratio_text(cell), "threshold"};
}

}  // namespace

std::string junit_text(const std::vector<ComparedCell>& cells, double threshold) {
  std::vector<JunitCase> cases;
  for (const ComparedCell& cell : cells)
    cases.push_back(case_of(cell, threshold));
  return junit_suite("gradsync-report compare", "gradsync.compare", cases);
}

}  // namespace gradsync::report
