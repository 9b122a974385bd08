#include <fmt/format.h>

#include "analysis/tables/comparison.h"
#include "base/table.h"

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

JunitCase case_of(const ComparedLink& link, double threshold) {
  if (!link.both() || !link.ratio.has_interval())
    return {link.name, JunitCase::Result::kSkipped, link.verdict(), ""};
  return {link.name,
          link.fails(threshold) ? JunitCase::Result::kFailed : JunitCase::Result::kPassed,
          fmt::format("busbw B/A = {:.4f} (95 %: {:.4f} to {:.4f}), A {:.6g} B/s, B {:.6g} B/s, {}",
                      link.ratio.value, link.ratio.low, link.ratio.high, link.busbw_a.value,
                      link.busbw_b.value, link.verdict()),
          "threshold"};
}

}  // namespace

std::string junit_text(const std::vector<ComparedCell>& cells,
                       const std::vector<ComparedLink>& links, double threshold) {
  std::vector<JunitCase> cases;
  for (const ComparedCell& cell : cells)
    cases.push_back(case_of(cell, threshold));
  for (const ComparedLink& link : links)
    cases.push_back(case_of(link, threshold));
  return junit_suite("gradsync-report compare", "gradsync.compare", cases);
}

}  // namespace gradsync::report
